"""What a cluster submits for maintenance; the arguments are those of `tailrace maintain`.

spark-submit spark/jobs/maintain.py pipelines/flights.py
"""

import sys

from tailrace.cli.main import app
from tailrace.cli.runtime.cluster_entry import run_submitted

if __name__ == "__main__":
    run_submitted(app, "maintain", sys.argv[1:])
