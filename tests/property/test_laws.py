"""The laws of DESIGN.md, section 4, on random definitions and random epochs, of the reference execution.

How many examples each law gets is a matter of the machine: `TAILRACE_EXAMPLES=20 make check` tries twenty times as many.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

from hypothesis import given, note, settings
from hypothesis import strategies as st

from tailrace.model.algebra import Scalars
from tailrace.model.clock import BoundedDisorder, Clock
from tailrace.model.combiners import Combiner
from tailrace.model.panes import Accumulation, answers
from tailrace.model.pipeline import Pipeline
from tailrace.model.reference import at_once, batch, fold
from tailrace.model.time import END_OF_TIME, instant, moment, seconds
from tailrace.model.triggers import AllOf, AnyOf, Repeat, Sequence
from tailrace.model.windows import Fixed, Sessions, Sliding, Window, gathered, merge
from tests.support import laws
from tests.support.strategies import BASE, EVERYTHING, LOG, Epochs, epochs, everything, pipelines, runs, triggers
