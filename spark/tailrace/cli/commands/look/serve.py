"""`tailrace serve`: show the lake on a read-only web page."""

from __future__ import annotations

from tailrace.cli.terminal.console import Output
from tailrace.plan.loader import load_all
from tailrace.settings import Settings

PORT = 8321
"""The default port of the web page."""


def serve(
    definitions: list[str],
    host: str = "127.0.0.1",
    port: int = PORT,
    token: str | None = None,
    airflow: str | None = None,
) -> None:
    """Show the lake in a browser: the status of each definition, its windows and panes, late records, and runs.

    The page is refreshed after each epoch. The command reads the tables, writes nothing, and starts no Spark. The page
    loads nothing from other servers. Ctrl-C ends the command.
    """
    output = Output()
    settings = Settings() if token is None else Settings(serve_token=token)
    loaded = load_all(definitions)
    from tailrace.lake.catalog.lake import Lake
    from tailrace.serve.airflow_links import airflow_address
    from tailrace.serve.guard import Access
    from tailrace.serve.lake_pages import ServedDefinitions
    from tailrace.serve.web_application import application
    from tailrace.serve.web_server import listen
    from tailrace.serve.web_server import serve as run

    secret = None if settings.serve_token is None else settings.serve_token.get_secret_value()
    access = Access.of(host, secret, settings.serve_names)
    address = None if airflow is None else airflow_address(airflow)
    lake, served = Lake(settings, looks=True), ServedDefinitions(dict(zip(definitions, loaded, strict=True)))
    at = listen(host, port)
    app = application(
        lake, served, access, cookie=f"tailrace_{at.port}", airflow=address, tell=lambda line: output.say(line)
    )
    asks = "" if secret is None else "  (open it once with ?token=… behind)"
    run(app, at, lambda: output.say(f"the lake is shown at {at.address}{asks}; Ctrl-C ends it"))
