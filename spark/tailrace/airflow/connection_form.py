"""The fields of the form of a connection to a lake. Airflow reads them while it starts, so this imports no Airflow."""

from __future__ import annotations

from typing import Any

from tailrace.airflow.connection import HELD

TITLE = "Tailrace lake"
"""What the form calls the connection type."""

FIELDS = {
    "catalog_uri": (
        "Catalog",
        "sqlite:////FOLDER/catalog.db, postgresql://USER@HOST:PORT/DATABASE, glue:// or https://…",
    ),
    "warehouse": ("Warehouse", "The tables' files: a folder with its whole path, or s3://BUCKET/PREFIX"),
    "namespace": ("Namespace", "The namespace of the tables; main if empty"),
    "catalog": ("Catalog's name", "The name of the catalog, which is part of each table's key; lake if empty"),
    "catalog_token_uri": ("Tokens' address", "A REST catalog's: where the OAuth2 client gets its tokens"),
    "catalog_scope": ("Tokens' scope", "A REST catalog's: the scope of the tokens"),
    "catalog_warehouse": ("Catalog's warehouse", "A REST catalog's: the name of the warehouse, if it has several"),
    "catalog_prefix": ("Catalog's prefix", "A REST catalog's: the prefix of its paths, if it does not report one"),
    "registry": ("Registry", "The namespace of the tables of claimed records; registry if empty"),
    "checkpoints": ("Checkpoints", "The folder of Spark's checkpoints; in the warehouse if empty"),
}
"""The fields of the form, which are settings of the lake: each with its label and its description."""

BEHAVIOUR: dict[str, Any] = {
    "hidden_fields": ["host", "schema", "port"],
    "relabeling": {"login": "OAuth2 client", "password": "Secret"},
    "placeholders": {
        "login": "only for a REST catalog with OAuth2: the client's ID",
        "password": "the password of PostgreSQL, the token of a REST catalog, or the secret of its client",
        "extra": f'{{"{HELD}": {{"kafka_credential": "USER:PASSWORD"}}}}: any setting, the secret ones in "{HELD}"',
    },
}
"""What the form does with the fields that every connection has."""
