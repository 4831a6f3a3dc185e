"""What a simulated day costs on AWS, by billion records, from the prices of `prices.json`, each with page and date."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.planning.assumptions import Assumptions
from benchmarks.planning.sizing import Size

PRICES = Path(__file__).with_name("prices.json")
BILLION = 1e9
_HOURS_OF_MONTH = 730.0


@cache
def told() -> dict[str, Any]:
    """The file of prices."""
    found: dict[str, Any] = json.loads(PRICES.read_text())
    return found


def price(name: str) -> float:
    return float(told()["prices"][name]["price"])


@dataclass(frozen=True)
class Bill:
    """US dollars of a billion records."""

    compute: float
    maintenance: float
    storage: float
    requests: float
    kafka: float

    @property
    def together(self) -> float:
        return self.compute + self.maintenance + self.storage + self.requests + self.kafka


def bill(size: Size, assumed: Assumptions) -> Bill:
    """What a day costs, by billion records of it: workers are there for the whole day, however little comes."""
    day, setting = size.day, size.setting
    hours, per = day.seconds / 3600, BILLION / day.records
    core = price("vcpu_hour") + assumed.memory_of_core * price("gb_hour")
    driver = assumed.driver_cores * price("vcpu_hour") + max(
        size.driver_memory, assumed.driver_cores * assumed.memory_of_core
    ) * price("gb_hour")
    writes = day.files + day.metadata_files + assumed.checkpoint_writes * day.epochs
    requests = (
        writes * price("put")
        + assumed.reads_of_file * writes * price("get")
        + 2 * day.commits * price("catalog_request")
    )
    return Bill(
        compute=per * hours * (setting.cores * core + driver),
        maintenance=per * day.maintenance_cpu / 3600 * core,
        storage=per * day.data_bytes / 1e9 * assumed.months * price("storage_gb_month"),
        requests=per * requests,
        kafka=per * _kafka(size, assumed),
    )


def on_machines(size: Size, assumed: Assumptions) -> float:
    """What the stream's compute costs on EC2 in a cluster of EKS, in place of `Bill.compute`; one runs it oneself."""
    day, cores = size.day, size.setting.cores + max(assumed.driver_cores, size.driver_memory / assumed.memory_of_core)
    return BILLION / day.records * day.seconds / 3600 * (cores * price("machine_core_hour") + price("cluster_hour"))


def _kafka(size: Size, assumed: Assumptions) -> float:
    """Of a day: brokers for the hour with the most records, what is written, and what is kept."""
    day = size.day
    written = day.records * assumed.record_bytes / 1e9
    peak = day.records / day.seconds * (1 + assumed.swing) * assumed.record_bytes / 1e6
    # Brokers are of any size at a price in proportion, so that they are counted in the smallest.
    least, each = float(told()["kafka_brokers_least"]), float(told()["kafka_broker_mb_second"])
    small = max(least, math.ceil(peak / each))
    kept = written / day.seconds * assumed.retention
    brokers = small * price("small_broker_hour") * day.seconds / 3600
    stored = kept * price("kafka_gb_month") * day.seconds / 3600 / _HOURS_OF_MONTH
    return brokers + written * price("kafka_gb_in") + stored
