"""Two logs to fold from, for joins and unions alike."""

from __future__ import annotations

import pytest

from tailrace.lake.catalog.lake import Lake
from tailrace.settings import Settings
from tests.support.lakes.several_logs import Logs


@pytest.fixture
def logs(settings: Settings) -> Logs:
    return Logs(Lake(settings))
