"""The steps that are applied to each record before records are grouped: the paper's ParDo (Dataflow Model, 2.1).

A step converts one record to any number of records, and declares the types of the columns that it adds. After all
steps, `Pipeline.keep` drops the records that do not meet a condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from tailrace.model.base.algebra import Scalars
from tailrace.model.base.conditions import Condition
from tailrace.model.base.errors import Fault, RecordError, TailraceError, failure, unknown_column
from tailrace.model.base.expressions import Expression, expression_faults
from tailrace.model.base.names import RESERVED, name_faults, reserved
from tailrace.model.base.types import stored_faults
from tailrace.model.base.values import fitter
from tailrace.model.logs.log import PLACE, Log

Record = Mapping[str, Any]


class NeedsSparkError(TailraceError, NotImplementedError):
    """The error that a process without Spark raises for a step that only Spark can run."""


class ElementWise:
    """The base class of the steps that are applied to each record separately.

    `multiplies` says whether a step may return more than one record for one input record.
    """

    multiplies: ClassVar[bool] = False

    def columns(self, types: Mapping[str, str]) -> Mapping[str, str]:
        """Return the columns and types of the step's output, for input records with columns of these types."""
        raise NotImplementedError

    def read_columns(self, types: Mapping[str, str]) -> Iterable[str]:
        """Return the columns that the step reads, of records with columns of these types: by default, all columns."""
        return types

    def records(self, record: Record, types: Mapping[str, str]) -> Iterable[Record]:
        """Return the step's output for one record. Raises `RecordError` if the step cannot process the record."""
        raise NotImplementedError

    def may_fail(self, types: Mapping[str, str]) -> bool:
        """Return True if the step may reject a record with columns of these types."""
        return False

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        """Find the faults of the step for records with columns of these types."""
        raise NotImplementedError


@dataclass(frozen=True)
class Derive(ElementWise):
    """A step that computes new columns from a record's columns, with expressions that run in every execution.

    If a computed number does not fit its type, the record is rejected for this reason, and all other records are
    processed as usual.

    >>> from tailrace.model.base.expressions import Col
    >>> euros = Derive({"euros": Col("cents") // 100})
    >>> list(euros.records({"cents": 250}, {"cents": "bigint"}))
    [{'cents': 250, 'euros': 2}]
    """

    values: Mapping[str, Expression]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", MappingProxyType(dict(self.values)))

    def columns(self, types: Mapping[str, str]) -> Mapping[str, str]:
        return {**types, **{name: value.type(types) for name, value in self.values.items()}}

    def read_columns(self, types: Mapping[str, str]) -> Iterable[str]:
        return dict.fromkeys(name for value in self.values.values() for name in value.columns)

    def records(self, record: Record, types: Mapping[str, str]) -> Iterator[Record]:
        o = Scalars()
        made = {name: value.term(o, record, types) for name, value in self.values.items()}
        for name, reason in self.reasons(types).items():
            if made[name] is None and not self.values[name].missing(o, record, types):
                raise RecordError(reason)
        yield {**record, **made}

    def reasons(self, types: Mapping[str, str]) -> dict[str, str]:
        """Return the reasons for which this step may reject a record, as a dict from the name of a computed column to a
        reason.

        The dict contains only the columns whose values may fail to fit their types.

        >>> from tailrace.model.base.expressions import Col
        >>> Derive({"cost": Col("n") * Col("price"), "half": Col("n") // 2}).reasons({"n": "bigint", "price": "bigint"})
        {'cost': 'cost: n * price does not fit a bigint'}
        """
        parts = {name: value.unfit(types) for name, value in self.values.items()}
        return {name: f"{name}: {' or '.join(own)} does not fit a bigint" for name, own in parts.items() if own}

    def may_fail(self, types: Mapping[str, str]) -> bool:
        return bool(self.reasons(types))

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        if not self.values:
            yield Fault(f"{path}.values", {}, "at least one column", 'write Derive({"euros": Col("cents") // 100})')
        for name, value in self.values.items():
            yield from new_column_faults(f"{path}.values[{name!r}]", name, types)
            yield from expression_faults(f"{path}.values[{name!r}]", value, types)


@dataclass(frozen=True)
class _Function(ElementWise):
    """The base class of the steps that call a function. The function computes the columns that `gives` declares."""

    function: Callable[[Any], Any]
    gives: Mapping[str, str]

    multiplies: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "gives", MappingProxyType(dict(self.gives)))

    def columns(self, types: Mapping[str, str]) -> Mapping[str, str]:
        return {**types, **self.gives}


@dataclass(frozen=True)
class Each(_Function):
    """A step that calls a Python function on each record to compute new columns.

    To create one record, the function returns a mapping with the new columns. To create several records, the function
    returns a list of mappings. To drop the record, the function returns None. `gives` maps the names of the new columns
    to their types. If the function fails or returns values that do not fit these types, the record is rejected, the
    reason is stored, and all other records are processed as usual. The function must return the same result for the
    same record on every call. The function's code is not part of the definition's meaning, so give the definition
    another name when you change the code.

    The function receives all columns of a record, so all columns are part of the definition's meaning. `reads` names
    the columns that the function needs. The function then receives no other columns, and the definition does not change
    if the log gets more columns.

    >>> words = Each(lambda record: [{"word": word} for word in record["text"].split()], {"word": "string"})
    >>> [made["word"] for made in words.records({"text": "so it goes"}, {"text": "string"})]
    ['so', 'it', 'goes']
    >>> list(words.records({"text": None}, {"text": "string"}))
    Traceback (most recent call last):
        ...
    tailrace.model.base.errors.RecordError: AttributeError: 'NoneType' object has no attribute 'split'
    """

    function: Callable[[Record], Record | Iterable[Record] | None]
    gives: Mapping[str, str]
    reads: str | Iterable[str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reads is not None:
            object.__setattr__(self, "reads", (self.reads,) if isinstance(self.reads, str) else tuple(self.reads))

    def read_columns(self, types: Mapping[str, str]) -> Iterable[str]:
        return types if self.reads is None else self.reads

    def may_fail(self, types: Mapping[str, str]) -> bool:
        return True

    def records(self, record: Record, types: Mapping[str, str]) -> list[Record]:
        own = {name: record.get(name) for name in self.read_columns(types)}
        return [{**record, **one} for one in self.new_columns(own)]

    def new_columns(self, own: dict[str, Any]) -> list[dict[str, Any]]:
        """Call the function with the columns that it reads; return the new columns of each record that it makes.

        Raises `RecordError` if the function fails, or returns what does not fit.
        """
        try:
            given = self.function(MappingProxyType(own))
            made = [] if given is None else [given] if isinstance(given, Mapping) else list(given)
        except Exception as error:
            raise RecordError(failure(error)) from error
        return [self._checked(one) for one in made]

    def _checked(self, record: Record) -> dict[str, Any]:
        """Convert the values of the new columns to their types. Raises `RecordError` if a value does not fit."""
        if not isinstance(record, Mapping) or not record.keys() <= self.gives.keys():
            raise RecordError(f"it gave {record!r:.200}: expected the columns {', '.join(self.gives)}")
        values = {}
        for name, type_ in self.gives.items():
            value = record.get(name)
            try:
                values[name] = fitter(type_)(value)
            except (ValueError, TypeError, ArithmeticError) as error:
                raise RecordError(f"it gave {name} = {value!r:.200}: expected {type_}") from error
        return values

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        if not callable(self.function):
            yield Fault(
                f"{path}.function", self.function, "a function of a record", 'write for example Each(f, {"n": "int"})'
            )
        for name in self.reads or ():
            if name not in types:
                yield unknown_column(f"{path}.reads", name, types)
        yield from _gives_faults(path, self.gives, types)


@dataclass(frozen=True)
class SparkColumns(ElementWise):
    """A step that computes columns with Spark SQL expressions; this step runs only on Spark.

    `values` maps each new column to its type and the text of its expression. Use functions that return null on an
    error, such as `try_divide` instead of `/`. If an expression raises an error, the whole epoch fails in Spark. The
    stream then searches for the records that cause the error and rejects them (`SetAside`). If the stream does not find
    these records, the stream stops.
    """

    values: Mapping[str, tuple[str, str]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", MappingProxyType(dict(self.values)))

    def columns(self, types: Mapping[str, str]) -> Mapping[str, str]:
        return {**types, **{name: type for name, (type, _) in self.values.items()}}

    def records(self, record: Record, types: Mapping[str, str]) -> Iterable[Record]:
        raise NeedsSparkError(
            f"{', '.join(self.values)}: computed by Spark SQL: use Derive or Each to run without Spark"
        )

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        pairs = {name: one for name, one in self.values.items() if isinstance(one, tuple) and len(one) == 2}
        for name in self.values.keys() - pairs.keys():
            example = 'write for example {"word": ("string", "lower(text)")}'
            yield Fault(f"{path}.values[{name!r}]", self.values[name], "a type and an expression", example)
        yield from _gives_faults(path, {name: type for name, (type, _) in pairs.items()}, types, "values")


@dataclass(frozen=True)
class SparkFrame(_Function):
    """A step that applies a function to a Spark DataFrame; this step runs only on Spark.

    The function may add the columns that `gives` declares, drop records, or convert one record to several records. The
    function must keep all columns of its input, including columns whose names begin with _. The function must process
    each record independently of all other records.
    """

    def records(self, record: Record, types: Mapping[str, str]) -> Iterable[Record]:
        raise NeedsSparkError("a function of a DataFrame: use Derive or Each to run without Spark")

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        if not callable(self.function):
            yield Fault(
                f"{path}.function", self.function, "a function of a DataFrame", "write SparkFrame(f, gives={...})"
            )
        yield from _gives_faults(path, self.gives, types, least=0)


class Place(NamedTuple):
    """The position of a record in its log: the landing epoch, the source's partition, and the offset in the
    partition.
    """

    epoch: int
    source: str | None
    offset: int | None

    @classmethod
    def of(cls, record: Record) -> Place:
        """Return the position of a record in its log."""
        return cls(*(record.get(name) for name in PLACE))  # type: ignore[arg-type]


Reasons = Mapping[Place, str]
"""The records that streams have set aside (rule X7): a mapping from a record's position in the log to the reason."""

NONE_SET_ASIDE: Reasons = MappingProxyType({})


@dataclass(frozen=True)
class SetAside(ElementWise):
    """A step that rejects the records that a stream has set aside because every epoch that contained these records
    failed.

    The step recognizes a set-aside record by its position in the log, and rejects the record for the reason that the
    stream stored. As a last resort, a stream puts a `SetAside` step before the steps that a definition declares (rule
    X7). Every process that reads the definition's ledger adds the same `SetAside` step. The step is not part of the
    definition's meaning.
    """

    reasons: Reasons

    def __post_init__(self) -> None:
        object.__setattr__(self, "reasons", MappingProxyType(dict(self.reasons)))

    def columns(self, types: Mapping[str, str]) -> Mapping[str, str]:
        return types

    def read_columns(self, types: Mapping[str, str]) -> Iterable[str]:
        return ()

    def may_fail(self, types: Mapping[str, str]) -> bool:
        return True

    def records(self, record: Record, types: Mapping[str, str]) -> Iterator[Record]:
        if (reason := self.reasons.get(Place.of(record))) is not None:
            raise RecordError(reason)
        yield record

    def faults(self, path: str, types: Mapping[str, str]) -> Iterable[Fault]:
        return ()


def columns_after(steps: Iterable[ElementWise], types: Mapping[str, str]) -> Mapping[str, str]:
    """Return the names and types of the columns after all steps, for input records with columns of these types."""
    for one in steps:
        types = one.columns(types)
    return types


def columns_read(steps: Iterable[ElementWise], types: Mapping[str, str]) -> frozenset[str]:
    """Return the names of all columns that the steps read; some of these columns are the results of earlier steps.

    >>> from tailrace.model.base.expressions import Col
    >>> sorted(columns_read([Derive({"euros": Col("cents") // 100})], {"cents": "bigint", "city": "string"}))
    ['cents']
    """
    found = set[str]()
    for one in steps:
        found.update(one.read_columns(types))
        types = one.columns(types)
    return frozenset(found)


def own_steps(steps: Iterable[ElementWise]) -> list[ElementWise]:
    """Return the steps that a definition declares, without the steps that reject set-aside records."""
    return [one for one in steps if not isinstance(one, SetAside)]


class Prepared(NamedTuple):
    """The records that the steps returned for one input record, and the reasons why steps rejected records."""

    records: list[Record]
    reasons: list[str]


def taken_through(steps: Iterable[ElementWise], record: Record, types: Mapping[str, str]) -> Prepared:
    """Apply steps to one record.

    If a step returns several records, a later step accepts or rejects each record separately.
    """
    records, reasons = [record], list[str]()
    for step in steps:
        made = list[Record]()
        for each in records:
            try:
                made += list(step.records(each, types))
            except RecordError as error:
                reasons.append(str(error))
        records, types = made, step.columns(types)
    return Prepared(records, reasons)


def meets(condition: Condition | None, record: Record, types: Mapping[str, str]) -> bool:
    """Return True if a record meets a condition, or if there is no condition."""
    if condition is None:
        return True
    values = {column: record.get(column) for column in condition.columns}
    return bool(condition.holds(Scalars(), values, types))


def _gives_faults(
    path: str, gives: Mapping[str, str], types: Mapping[str, str], field: str = "gives", least: int = 1
) -> Iterable[Fault]:
    if len(gives) < least:
        yield Fault(f"{path}.{field}", {}, "the new columns with their types", 'write for example {"word": "string"}')
    for name, type_ in gives.items():
        yield from new_column_faults(f"{path}.{field}[{name!r}]", name, types)
        yield from stored_faults(f"{path}.{field}[{name!r}]", type_)


def new_column_faults(path: str, name: object, types: Mapping[str, str]) -> Iterable[Fault]:
    """Find the faults in the name of a column that a step adds to records with columns of these types."""
    yield from name_faults(path, name)
    if name in RESERVED:
        yield reserved(path, name)
    if name in types:
        yield Fault(path, name, "a name that no column has yet", "rename it, for example to my_" + str(name))


def element_faults(path: str, step: object, types: Mapping[str, str]) -> Iterable[Fault]:
    """Find the faults of a step. A value that is not an `ElementWise` is itself a fault."""
    if isinstance(step, ElementWise):
        return step.faults(path, types)
    return [Fault(path, step, "a step", 'write for example Derive({"euros": Col("cents") // 100})')]


def steps_faults(steps: Iterable[object], types: Mapping[str, str]) -> Iterator[Fault]:
    """Find the faults of the first faulty step.

    Later steps are not checked, because they may need columns of the faulty step.
    """
    for place, step in enumerate(steps):
        faults = list(element_faults(f"each[{place}]", step, types))
        yield from faults
        if faults or not isinstance(step, ElementWise):
            return
        types = step.columns(types)


def unkept_faults(steps: Iterable[ElementWise], log: Log) -> Iterator[Fault]:
    """Find the steps that call a Python function (`Each`), if the log's records are not kept; each such step is a
    fault.

    Such a step may reject records (MillWheel, 6.1.3). For a rejected record, the ledger has only the record's position,
    by which a person must be able to find the record in the log.
    """
    for place, one in enumerate(steps):
        if isinstance(one, Each) and not log.kept:
            expected = "records that are kept, for it may reject some"
            yield Fault(f"each[{place}]", one, expected, f'leave productions="weak" out of {log.name}')
