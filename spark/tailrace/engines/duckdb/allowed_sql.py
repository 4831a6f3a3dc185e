"""Hold a person's query, in DuckDB's SQL, to reading: what it names is checked, and then the database is locked.

DuckDB's own parser says what is in a query, so that nothing means one thing here and another where it runs. What is not
known to be harmless is refused: a new function of DuckDB's is not allowed before it is listed here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import duckdb

from tailrace.lake.read.query_views import QueryError, first_line, refusal, unknown_table

_NAMES = """
    abs acos acosh add age aggregate ago alias any_value apply approx_count_distinct approx_quantile approx_top_k
    arbitrary arg_max arg_max_null arg_max_nulls_last arg_min arg_min_null arg_min_nulls_last argmax argmin
    array_agg array_aggr array_aggregate array_append array_apply array_cat array_concat array_contains
    array_cosine_distance array_cosine_similarity array_cross_product array_distance array_distinct
    array_dot_product array_extract array_filter array_grade_up array_has array_has_all array_has_any array_indexof
    array_inner_product array_intersect array_length array_negative_dot_product array_negative_inner_product
    array_pop_back array_pop_front array_position array_prepend array_push_back array_push_front array_reduce
    array_resize array_reverse array_reverse_sort array_select array_slice array_sort array_to_json array_to_string
    array_to_string_comma_default array_transform array_unique array_value array_where array_zip ascii asin asinh
    atan atan2 atanh avg bar base64 bin bit_and bit_count bit_length bit_or bit_position bit_xor bitstring
    bitstring_agg bool_and bool_or cardinality cbrt ceil ceiling century char_length character_length chr concat
    concat_ws constant_or_null contains corr cos cosh cot count count_if count_star countif covar_pop covar_samp
    cume_dist current_catalog current_database current_date current_localtime current_localtimestamp current_schema
    current_schemas current_user damerau_levenshtein date_add date_diff date_part date_sub date_trunc datediff
    datepart datesub datetrunc day dayname dayofmonth dayofweek dayofyear days_in_month decade decode degrees
    dense_rank divide editdist3 element_at encode ends_with entropy enum_code enum_first enum_last enum_range
    enum_range_boundary epoch epoch_ms epoch_ns epoch_us equi_width_bins era error even exp factorial favg fdiv fill
    filter first first_value flatten floor fmod format formatReadableDecimalSize formatReadableSize format_bytes
    from_base64 from_binary from_hex from_json from_json_strict fsum gamma gcd gen_random_uuid generate_series
    generate_subscripts geomean geometric_mean get_bit get_current_time get_current_timestamp grade_up greatest
    greatest_common_divisor group_concat hamming hash hex histogram histogram_exact hour icu_sort_key ilike_escape
    instr isfinite isinf isnan isodow isoyear jaccard jaro_similarity jaro_winkler_similarity json json_array
    json_array_length json_contains json_exists json_extract json_extract_path json_extract_path_text
    json_extract_string json_group_array json_group_object json_group_structure json_keys json_merge_patch
    json_object json_pretty json_quote json_structure json_transform json_transform_strict json_type json_valid
    json_value julian kahan_sum kurtosis kurtosis_pop lag last last_day last_value lcase lcm lead least
    least_common_multiple left left_grapheme len length length_grapheme levenshtein lgamma like_escape list
    list_aggr list_aggregate list_any_value list_append list_apply list_approx_count_distinct list_avg list_bit_and
    list_bit_or list_bit_xor list_bool_and list_bool_or list_cat list_concat list_contains list_cosine_distance
    list_cosine_similarity list_count list_distance list_distinct list_dot_product list_element list_entropy
    list_extract list_filter list_first list_grade_up list_has list_has_all list_has_any list_histogram list_indexof
    list_inner_product list_intersect list_kurtosis list_kurtosis_pop list_last list_mad list_max list_median
    list_min list_mode list_negative_dot_product list_negative_inner_product list_pack list_position list_prepend
    list_product list_reduce list_resize list_reverse list_reverse_sort list_select list_sem list_skewness
    list_slice list_sort list_stddev_pop list_stddev_samp list_string_agg list_sum list_transform list_unique
    list_value list_var_pop list_var_samp list_where list_zip listagg ln log log10 log2 lower lpad ltrim mad
    make_date make_time make_timestamp make_timestamp_ms make_timestamp_ns make_timestamptz map map_concat
    map_contains map_contains_entry map_contains_value map_entries map_extract map_extract_value map_from_entries
    map_keys map_values max max_by md5 md5_number md5_number_lower md5_number_upper mean median microsecond
    millennium millisecond min min_by minute mismatches mod mode month monthname multiply nanosecond nextafter
    nfc_normalize normalized_interval not_ilike_escape not_like_escape now nth_value ntile nullif octet_length ord
    parse_dirname parse_dirpath parse_filename parse_formatted_bytes parse_path percent_rank pi position pow power
    prefix printf product quantile quantile_cont quantile_disc quarter radians random range rank rank_dense reduce
    regexp_escape regexp_extract regexp_extract_all regexp_full_match regexp_matches regexp_replace
    regexp_split_to_array regexp_split_to_table regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope
    regr_sxx regr_sxy regr_syy repeat replace reservoir_quantile reverse right right_grapheme round round_even
    roundbankers row row_number row_to_json rpad rtrim second sem set_bit sha1 sha256 sign signbit sin sinh skewness
    split split_part sqrt starts_with stddev stddev_pop stddev_samp str_split str_split_regex strftime string_agg
    string_split string_split_regex string_to_array strip_accents strlen strpos strptime struct_concat
    struct_contains struct_extract struct_extract_at struct_has struct_indexof struct_insert struct_keys struct_pack
    struct_position struct_update struct_values substr substring substring_grapheme subtract suffix sum
    sum_no_overflow sumkahan switch tan tanh time_bucket timezone timezone_hour timezone_minute to_base to_base64
    to_binary to_centuries to_days to_decades to_hex to_hours to_json to_microseconds to_millennia to_milliseconds
    to_minutes to_months to_quarters to_seconds to_timestamp to_weeks to_years today transaction_timestamp translate
    trim trunc try_strptime typeof ucase unbin unhex unicode union_extract union_tag union_value unnest unpivot_list
    upper url_decode url_encode uuid uuid_extract_timestamp uuid_extract_version uuidv4 uuidv7 var_pop var_samp
    variance variant_extract variant_typeof version wavg week weekday weekofyear weighted_avg xor year yearweek

    !__postfix !~~ !~~* % & && * ** + - ->> / // <-> << <=> <@ >> @ @> ^ ^@ | || ~ ~~ ~~* ~~~
"""

FUNCTIONS = frozenset(_NAMES.split())
"""The functions of a query: each computes from its arguments alone, and reads no file, setting or other query."""

TABLE_FUNCTIONS = frozenset({"unnest", "range", "generate_series", "json_each", "json_tree", "repeat", "repeat_row"})
"""The functions that may stand in a table's place: they make rows of their arguments."""

_NODES = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE"}
_RELATIONS = {
    "BASE_TABLE", "TABLE_FUNCTION", "SUBQUERY", "JOIN", "EXPRESSION_LIST", "EMPTY", "PIVOT", "SHOW_REF",
}  # fmt: skip
_EXPRESSIONS = {
    "CONSTANT", "COLUMN_REF", "FUNCTION", "WINDOW", "CAST", "CASE", "COMPARISON", "CONJUNCTION", "OPERATOR", "STAR",
    "SUBQUERY", "BETWEEN", "LAMBDA", "LAMBDA_REF", "COLLATE", "POSITIONAL_REFERENCE", "TYPE",
}  # fmt: skip

_EXPLAIN = re.compile(r"\s*explain(?:\s+analyze\b|\s*\((?:\s|,|analyze\b|format\s+\w+)*\))*\s*(?=\S)", re.IGNORECASE)


def check(query: str, relations: Collection[str]) -> None:
    """Check that a query is one SELECT, or asks about one, over these relations, by functions that only compute.

    Raises `QueryError` for anything else.
    """
    # The parser itself opens files for some statements, so it has a database that can open none.
    with duckdb.connect(config={"enable_external_access": False, "lock_configuration": True}) as connection:
        nodes = list(_nodes(_parsed(connection, query)))
    known = {name.lower() for name in relations} | {name for name in _own_names(nodes) if name.isidentifier()}
    making_rows = {id(node["function"]) for node in nodes if node.get("type") == "TABLE_FUNCTION"}
    for node in nodes:
        _check(node, known, TABLE_FUNCTIONS if id(node) in making_rows else FUNCTIONS)


def _parsed(connection: duckdb.DuckDBPyConnection, query: str) -> Any:
    """Parse a query by DuckDB; of an EXPLAIN it is the query that is explained."""
    try:
        kind = _kind(connection, query)
        explained = _EXPLAIN.match(query) if kind == "EXPLAIN" else None
        text = query if explained is None else query[explained.end() :]
        if explained is not None:
            kind = _kind(connection, text)
        found = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [text]).fetchone()
        tree = json.loads(found[0]) if found else {}
    except duckdb.ParserException as error:
        raise QueryError(first_line(str(error))) from None
    except duckdb.Error as error:
        raise refusal(first_line(str(error))) from None
    except RecursionError:
        raise QueryError("the query is nested too deeply: write its inner queries behind WITH") from None
    if tree.get("error", True) or len(tree["statements"]) != 1:
        raise refusal(f"found a statement of the kind {kind}")
    return tree


def _kind(connection: duckdb.DuckDBPyConnection, text: str) -> str:
    statements = connection.extract_statements(text)
    if len(statements) != 1:
        raise refusal(f"found {len(statements)} statements")
    return statements[0].type.name


def lock(connection: duckdb.DuckDBPyConnection, files: Iterable[str] = (), folders: Iterable[str] = ()) -> None:
    """Let a database read these files and what is in these folders, nothing else, and have no setting changed again."""
    connection.execute("SET allowed_paths = ?", [list(files)])
    connection.execute("SET allowed_directories = ?", [[folder.rstrip("/") + "/" for folder in folders]])
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _nodes(tree: Any) -> Iterator[Mapping[str, Any]]:
    """Yield all objects of a tree; the constants of a query are no part of it."""
    stack = [tree]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            yield one
            stack += [value for key, value in one.items() if key != "value" or one.get("class") != "CONSTANT"]
        elif isinstance(one, list):
            stack += one


def _own_names(nodes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the names that a query gives to queries of its own, in lower case."""
    for node in nodes:
        for entry in (node.get("cte_map") or {}).get("map", ()):
            yield str(entry["key"]).lower()


def _check(node: Mapping[str, Any], known: Collection[str], functions: Collection[str]) -> None:
    kind, type = node.get("class"), node.get("type")
    if kind is not None:
        if kind not in _EXPRESSIONS:
            raise refusal(f"found a {str(kind).lower()}")
        if kind in ("FUNCTION", "WINDOW"):
            name = str(node["function_name"]).lower()
            if node["catalog"] or node["schema"].lower() not in ("", "main") or name not in functions:
                raise refusal(f"found the function {name}")
    elif "modifiers" in node:
        if type not in _NODES:
            raise refusal(f"found a query of the kind {type}")
    elif "sample" in node and "alias" in node:
        if type not in _RELATIONS:
            raise refusal(f"found a relation of the kind {type}")
        if type == "BASE_TABLE":
            name, schema = node["table_name"], node["schema_name"]
            if node["catalog_name"] or schema.lower() not in ("", "main") or name.lower() not in known:
                raise unknown_table([node["catalog_name"], schema, name])
