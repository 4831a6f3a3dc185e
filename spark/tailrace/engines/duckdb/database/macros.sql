-- Macros for the functions of Spark that queries call and that DuckDB lacks.
CREATE MACRO pmod(a, b) AS CASE WHEN a % b < 0 THEN a % b + b ELSE a % b END;
-- DuckDB rounds half to even when it casts a double to a bigint; queries round only numbers that fit a bigint.
CREATE MACRO rint(a) AS CAST(CAST(a AS bigint) AS double);
CREATE MACRO timestamp_micros(a) AS make_timestamptz(a);
CREATE MACRO unix_micros(a) AS epoch_us(a);
CREATE MACRO array_union(a, b) AS list_distinct(list_concat(a, b));
CREATE MACRO array_repeat(a, n) AS repeat([a], n);
CREATE MACRO sorted_up(a) AS list_sort(a, 'ASC', 'NULLS FIRST');
CREATE MACRO sorted_down(a) AS list_sort(a, 'DESC', 'NULLS LAST');
CREATE MACRO from_utc(moment, zone) AS timezone(zone, moment);
-- Where clocks show two instants alike, `to_utc` gives the first one, which has the offset of the day before.
CREATE MACRO day_before(clocks, zone) AS epoch_us(timezone(zone, clocks)) - 86400000000;
CREATE MACRO shown_by(micros, zone) AS timezone(zone, make_timestamptz(micros));
CREATE MACRO offset_at(micros, zone) AS epoch_us(shown_by(micros, zone)) - micros;
CREATE MACRO first_of(clocks, zone) AS epoch_us(clocks) - offset_at(day_before(clocks, zone), zone);
CREATE MACRO to_utc(clocks, zone) AS CASE WHEN shown_by(first_of(clocks, zone), zone) = clocks
    THEN make_timestamptz(first_of(clocks, zone)) ELSE timezone(zone, clocks) END;
