"""Hold a person's query, in Spark's SQL, to reading: what its parsed tree names is checked before it runs.

Spark's own parser says what is in a query, so that nothing means one thing here and another where it runs. What is not
known to be harmless is refused: a new statement or function of Spark's is not allowed before it is listed here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from py4j.java_gateway import JavaGateway, JavaObject, is_instance_of
from pyspark.sql import SparkSession

from tailrace.lake.catalog.lake import Lake
from tailrace.lake.read.query_views import refusal, unknown_table

_NAMES = """
    abs acos acosh add_months aes_decrypt aes_encrypt aggregate and any any_value approx_count_distinct
    approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine approx_top_k_estimate array
    array_agg array_append array_compact array_contains array_distinct array_except array_insert array_intersect
    array_join array_max array_min array_position array_prepend array_remove array_repeat array_size array_sort
    array_union arrays_overlap arrays_zip ascii asin asinh assert_true atan atan2 atanh avg base64 between bigint
    bin binary bit_and bit_count bit_get bit_length bit_or bit_xor bitmap_and_agg bitmap_bit_position
    bitmap_bucket_number bitmap_construct_agg bitmap_count bitmap_or_agg bool_and bool_or boolean bround btrim
    cardinality case cast cbrt ceil ceiling char char_length character_length chr coalesce collate collation
    collations collect_list collect_set concat concat_ws contains conv convert_timezone corr cos cosh cot count
    count_if count_min_sketch covar_pop covar_samp crc32 csc cume_dist curdate current_catalog current_database
    current_date current_schema current_time current_timestamp current_timezone current_user date date_add date_diff
    date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth
    dayofweek dayofyear decimal decode degrees dense_rank div double e element_at elt encode endswith equal_null
    every exists exp explode explode_outer expm1 extract factorial filter find_in_set first first_value flatten
    float floor forall format_number format_string from_csv from_json from_unixtime from_utc_timestamp get
    get_json_object getbit greatest grouping grouping_id hash hex histogram_numeric hll_sketch_agg
    hll_sketch_estimate hll_union hll_union_agg hour hypot if ifnull ilike in initcap inline inline_outer
    input_file_block_length input_file_block_start input_file_name instr int is_valid_utf8 is_variant_null isnan
    isnotnull isnull json_array_length json_object_keys json_tuple kll_merge_agg_bigint kll_merge_agg_double
    kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float kll_sketch_get_n_bigint
    kll_sketch_get_n_double kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double
    kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float
    kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float kll_sketch_to_string_bigint
    kll_sketch_to_string_double kll_sketch_to_string_float kurtosis lag last last_day last_value lcase lead least
    left len length levenshtein like listagg ln localtimestamp locate log log10 log1p log2 lower lpad ltrim
    luhn_check make_date make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz
    make_timestamp_ntz make_valid_utf8 make_ym_interval map map_concat map_contains_key map_entries map_filter
    map_from_arrays map_from_entries map_keys map_values map_zip_with mask max max_by md5 mean median min min_by
    minute mod mode monotonically_increasing_id month monthname months_between named_struct nanvl negative next_day
    not now nth_value ntile nullif nullifzero nvl nvl2 octet_length or overlay parse_json parse_url percent_rank
    percentile percentile_approx percentile_cont percentile_disc pi pmod posexplode posexplode_outer position
    positive pow power printf quarter quote radians raise_error rand randn random randstr range rank reduce regexp
    regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr regr_avgx
    regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy repeat replace reverse right
    rint rlike round row_number rpad rtrim schema_of_csv schema_of_json schema_of_variant schema_of_variant_agg sec
    second sentences sequence session_user session_window sha sha1 sha2 shiftleft shiftright shiftrightunsigned
    shuffle sign signum sin sinh size skewness slice smallint some sort_array soundex space spark_partition_id split
    split_part sql_keywords sqrt stack startswith std stddev stddev_pop stddev_samp str_to_map string string_agg
    struct substr substring substring_index sum tan tanh theta_difference theta_intersection theta_intersection_agg
    theta_sketch_agg theta_sketch_estimate theta_union theta_union_agg time time_diff time_trunc timestamp
    timestamp_micros timestamp_millis timestamp_seconds tinyint to_binary to_char to_csv to_date to_json to_number
    to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar
    to_variant_object transform transform_keys transform_values translate trim trunc try_add try_aes_decrypt try_avg
    try_divide try_element_at try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz
    try_mod try_multiply try_parse_json try_parse_url try_subtract try_sum try_to_binary try_to_date try_to_number
    try_to_time try_to_timestamp try_url_decode try_validate_utf8 try_variant_get typeof ucase unbase64 unhex
    uniform unix_date unix_micros unix_millis unix_seconds unix_timestamp upper url_decode url_encode user uuid
    validate_utf8 var_pop var_samp variance variant_explode variant_explode_outer variant_get version weekday
    weekofyear when width_bucket window window_time xxhash64 year zeroifnull zip_with

    ! != % & * + - / < << <= <=> <> = == > >= >> >>> ^ | || ~
"""

FUNCTIONS = frozenset(_NAMES.split())
"""The functions of a query: each computes from its arguments alone, and runs no code, file or other query."""

_STATEMENTS = """
    Project Filter Aggregate Sort GlobalLimit LocalLimit Offset Union Except Intersect Distinct Join LateralJoin
    SubqueryAlias UnresolvedWith WithWindowDefinition OneRowRelation LocalRelation Generate Pivot Unpivot Transpose
    Sample UnresolvedHint RepartitionByExpression RebalancePartitions JoinHint ShowTables ShowColumns ShowCreateTable
    ShowTableProperties ShowFunctions ShowPartitions ShowViews views.ShowIcebergViews ShowNamespaces DescribeRelation
    DescribeColumn DescribeFunction DescribeNamespace
"""
_COMMANDS = "ExplainCommand DescribeQueryCommand ShowNamespacesCommand ShowCurrentNamespaceCommand ShowCatalogsCommand"
_NAMED = """
    UnresolvedAttribute UnresolvedStar UnresolvedStarExceptOrReplace UnresolvedRegex UnresolvedAlias UnresolvedFunction
    UnresolvedOrdinal UnresolvedHaving UnresolvedRelation UnresolvedInlineTable ResolvedInlineTable UnresolvedGenerator
    UnresolvedTableValuedFunction UnresolvedTVFAliases UnresolvedSubqueryColumnAliases UnresolvedExtractValue
    UnresolvedTableOrView UnresolvedTable UnresolvedNamespace ResolvedNamespace CurrentNamespace$ UnresolvedFunctionName
    RelationTimeTravel MultiAlias UnresolvedPartitionSpec
"""

_CATALYST = "org.apache.spark.sql.catalyst"

ALLOWED = frozenset(
    f"{package}.{name}"
    for package, names in {
        f"{_CATALYST}.plans.logical": _STATEMENTS,
        f"{_CATALYST}.analysis": _NAMED,
        "org.apache.spark.sql.execution.command": _COMMANDS,
    }.items()
    for name in names.split()
)
"""The classes of Spark's that a query may consist of besides expressions, which hold queries or name functions."""

_METADATA = re.compile(
    r"history|metadata_log_entries|snapshots|(all_)?(entries|files|data_files|delete_files|manifests)|partitions|refs"
    r"|position_deletes|(branch|tag)_\w+|(snapshot_id|at_timestamp)_\d+",
    re.ASCII,
)
"""What Iceberg tells of a table, or which of its snapshots is meant, behind the table's name."""


def check(spark: SparkSession, lake: Lake, query: str, relations: Sequence[str], *, bare: bool) -> None:
    """Check that a query is one SELECT, or asks about one, over the lake's tables, by functions that only compute.

    `relations` are the tables and views by their bare names; other names are those of tables with their namespace,
    unless they have to be `bare`. Raises `QueryError` for anything else, and Spark's own error for what is no SQL.
    """
    jvm: Any = spark
    nodes = list(_nodes(jvm.sparkContext._gateway, jvm._jsparkSession.sessionState().sqlParser().parsePlan(query)))
    known = {name.lower() for name in relations}
    for name, node in nodes:
        if name == f"{_CATALYST}.plans.logical.UnresolvedWith":
            known |= {str(_at(one, 0)).lower() for one in _items(node.cteRelations())}
    for name, node in nodes:
        short = name.rpartition(".")[2]
        if not name.startswith(f"{_CATALYST}.expressions.") and name not in ALLOWED:
            raise refusal(f"found {_words(short)}")
        if short in ("UnresolvedRelation", "UnresolvedTableOrView", "UnresolvedTable"):
            parts = [str(part) for part in _items(node.multipartIdentifier())]
            if (bare and len(parts) > 1) or not _known(lake, parts, known):
                raise unknown_table(parts)
            if short == "UnresolvedRelation" and not node.options().isEmpty():
                raise refusal("found a table with options")
        elif short in ("UnresolvedFunction", "UnresolvedTableValuedFunction", "UnresolvedGenerator"):
            _check_function(_function(short, node))


def _nodes(gateway: JavaGateway, root: JavaObject) -> Iterator[tuple[str, JavaObject]]:
    """Yield the statements and expressions of a parsed query, those of its inner queries included, with their classes.

    An inner query may be anywhere in what a node is made of, so all of that is looked through.
    """
    stack: list[Any] = [root]
    while stack:
        one = stack.pop()
        if not isinstance(one, JavaObject):
            continue
        name = str(one.getClass().getName())
        if name.startswith("scala."):
            iterable = is_instance_of(gateway, one, "scala.collection.IterableOnce")
            stack += _items(one) if iterable else _parts(gateway, one)
        elif is_instance_of(gateway, one, f"{_CATALYST}.trees.TreeNode"):
            yield name, one
            stack += _parts(gateway, one)


def _parts(gateway: JavaGateway, one: JavaObject) -> list[Any]:
    return _items(one.productIterator()) if is_instance_of(gateway, one, "scala.Product") else []


def _items(iterable: Any) -> list[Any]:
    iterator = iterable.iterator()
    found = []
    while iterator.hasNext():
        found.append(iterator.next())
    return found


def _at(product: Any, place: int) -> Any:
    return product.productElement(place)


def _known(lake: Lake, parts: Sequence[str], known: set[str]) -> bool:
    """Tell whether a name is one of the relations, or one of a table of the lake's catalog with its namespace."""
    if len(parts) == 1:
        return parts[0].lower() in known
    if len(parts) > 2 and _METADATA.fullmatch(parts[-1].lower()) and _known(lake, parts[:-1], known):
        return True
    inner = parts[1:] if parts[0] == lake.settings.catalog and len(parts) > 2 else parts
    return len(inner) == 2 and (bool(lake.catalog.table_exists(tuple(inner))) or _is_view(lake, tuple(inner)))


def _is_view(lake: Lake, name: tuple[str, ...]) -> bool:
    """Tell whether the catalog has a view of this name, such as dbt makes; it is read as its maker wrote it."""
    # Not every catalog of pyiceberg's can tell.
    with suppress(NotImplementedError):
        return bool(lake.catalog.view_exists(name))
    return False


def _function(short: str, node: Any) -> list[str]:
    if short == "UnresolvedGenerator":
        name = node.name()
        return [*(str(part.get()) for part in (name.database(),) if part.isDefined()), str(name.funcName())]
    parts = node.name() if short == "UnresolvedTableValuedFunction" else node.nameParts()
    return [str(part) for part in _items(parts)]


def _check_function(parts: Sequence[str]) -> None:
    if len(parts) != 1 or parts[0].lower() not in FUNCTIONS:
        raise refusal(f"found the function {'.'.join(parts)}")


def _words(name: str) -> str:
    """Write the name of a class of Spark's in words.

    >>> _words("DeleteFromTable"), _words("UnresolvedExecuteImmediate")
    ('delete from table', 'execute immediate')
    """
    plain = name.removeprefix("Unresolved").removesuffix("Command").removesuffix("Statement").removesuffix("$")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", plain).lower()
