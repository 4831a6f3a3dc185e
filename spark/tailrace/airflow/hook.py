"""The hook of a connection to a lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from tailrace.airflow.connection import TYPE, load_settings
from tailrace.airflow.connection_form import BEHAVIOUR, FIELDS, TITLE

if TYPE_CHECKING:
    from tailrace.lake.catalog.lake import Lake
    from tailrace.settings import Settings

__all__ = ["TailraceHook"]


class TailraceHook(BaseHook):
    """A lake that an Airflow connection of the type `tailrace_lake` names."""

    conn_name_attr = "conn_id"
    default_conn_name = "tailrace_default"
    conn_type = TYPE
    hook_name = TITLE

    def __init__(self, conn_id: str = default_conn_name, **more: Any) -> None:
        super().__init__(**more)
        self.conn_id = conn_id

    def get_settings(self) -> Settings:
        """Return the settings that the connection gives. Airflow hides the secrets in logs from then on."""
        return load_settings(self.conn_id)

    def get_conn(self) -> Lake:
        """Return the lake."""
        from tailrace.lake.catalog.lake import Lake

        return Lake(self.get_settings())

    def test_connection(self) -> tuple[bool, str]:
        """Look whether the warehouse and the catalog can be used; return the answer, and a text with what mends it."""
        from tailrace.doctor.findings import Finding, run_check
        from tailrace.doctor.lake_checks import check_catalog, check_folder

        found: list[Finding] = []
        settings: list[Settings] = []

        def check_settings() -> str:
            settings.append(self.get_settings())
            return "they hold"

        found.append(run_check("settings", check_settings))
        if settings:
            if not settings[0].on_s3:
                found.append(run_check("warehouse", lambda: check_folder(settings[0])))
            found.append(run_check("catalog", lambda: check_catalog(settings[0])))
        wrong = [one for one in found if one.state == "wrong"]
        told = [f"{one.found} → {one.mend}" if one.mend else one.found for one in wrong or found[1:]]
        return not wrong, "; ".join(" ".join(text.split()) for text in told)

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return what the form does with the fields that every connection has."""
        return BEHAVIOUR

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """Return the form's further fields, for an Airflow that does not read them from `get_provider_info`."""
        from wtforms import StringField

        return {name: StringField(label, description=said) for name, (label, said) in FIELDS.items()}
