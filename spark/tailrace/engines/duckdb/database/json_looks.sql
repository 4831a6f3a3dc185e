-- Macros for a look into a JSON text (`json_looks`), one for each group of types. DuckDB reads most values as the model
-- does, and much faster than Python; `tailrace_inside` has the model read the other texts and values. So the result is
-- always the model's: the text of the value, without loss. `path` is the place as DuckDB writes it.

-- DuckDB's parser also accepts a comma before a closing bracket, NaN and infinities, and any number of levels. Few texts
-- have what may be one of them; only for these, the pattern is searched, which takes longer than all the rest.
CREATE MACRO _may_be_lax(t) AS contains(t, ',]') OR contains(t, ',}') OR contains(t, ' ]') OR contains(t, ' }')
    OR contains(t, chr(10) || ']') OR contains(t, chr(10) || '}') OR contains(t, chr(13) || ']')
    OR contains(t, chr(13) || '}') OR contains(t, chr(9) || ']') OR contains(t, chr(9) || '}')
    OR contains(lower(t), 'nan') OR contains(lower(t), 'inf');
CREATE MACRO _is_deep(t) AS strlen(t) > 1000 AND strlen(t) - strlen(replace(replace(t, '[', ''), '{', '')) > 500;
CREATE MACRO _is_doubtful(t) AS _is_deep(t) OR CASE WHEN _may_be_lax(t)
    THEN regexp_matches(t, '(?i),[ \t\r\n]*[\]}]|(?:^|[:\[,])[ \t\r\n]*-?(?:nan|inf)') ELSE false END;
CREATE MACRO _kind(t, path) AS TRY(json_type(t, path));

CREATE MACRO _look_string(t, path, place, target) AS CASE WHEN _kind(t, path) = 'VARCHAR'
    THEN CASE WHEN _is_doubtful(t) THEN tailrace_inside(t, place, target) ELSE json_extract_string(t, path) END
END;

CREATE MACRO _look_boolean(t, path, place, target) AS CASE WHEN _kind(t, path) = 'BOOLEAN'
    THEN CASE WHEN _is_doubtful(t) THEN tailrace_inside(t, place, target) ELSE json_extract_string(t, path) END
END;

CREATE MACRO _look_whole(t, path, place, target, low, high) AS CASE WHEN _kind(t, path) IN ('BIGINT', 'UBIGINT')
    THEN CASE WHEN _is_doubtful(t) THEN tailrace_inside(t, place, target)
    WHEN TRY_CAST(json_extract_string(t, path) AS BIGINT) BETWEEN low AND high THEN json_extract_string(t, path) END
END;

-- A number of usual size is read as the nearest double. Any other number may have lost digits.
CREATE MACRO _look_double(t, path, place, target) AS CASE WHEN _kind(t, path) IN ('BIGINT', 'UBIGINT', 'DOUBLE')
    THEN CASE WHEN _is_doubtful(t) THEN tailrace_inside(t, place, target)
    WHEN abs(TRY_CAST(json_extract_string(t, path) AS DOUBLE)) BETWEEN 1e-300 AND 9e15 THEN json_extract_string(t, path) ELSE tailrace_inside(t, place, target) END
END;

-- Without long digits and exponents in the text, a fraction has at most 15 digits, and is the shortest text of its double.
CREATE MACRO _look_decimal(t, path, place, target, fits) AS CASE WHEN _kind(t, path) IN ('BIGINT', 'UBIGINT', 'DOUBLE')
    THEN CASE WHEN _is_doubtful(t) THEN tailrace_inside(t, place, target)
    WHEN regexp_matches(t, '[0-9.]{17}|[0-9][eE]') THEN tailrace_inside(t, place, target)
    WHEN regexp_full_match(json_extract_string(t, path), fits) THEN json_extract_string(t, path) ELSE tailrace_inside(t, place, target) END
END;

CREATE MACRO _look_date(t, path, place, target) AS CASE WHEN _kind(t, path) = 'VARCHAR'
    THEN CASE WHEN _is_doubtful(t) THEN tailrace_inside(t, place, target)
    WHEN regexp_full_match(json_extract_string(t, path), '[0-9]{4}-[0-9]{2}-[0-9]{2}') AND json_extract_string(t, path) >= '0001'
        AND TRY_CAST(json_extract_string(t, path) AS DATE) IS NOT NULL THEN json_extract_string(t, path) END
END;

CREATE MACRO _look_timestamp(t, path, place, target) AS CASE WHEN _kind(t, path) = 'VARCHAR'
    THEN CASE WHEN _is_doubtful(t) THEN tailrace_inside(t, place, target)
    WHEN json_extract_string(t, path) >= '0001' AND regexp_full_match(json_extract_string(t, path),
            '[0-9]{4}-[0-9]{2}-[0-9]{2}[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?Z?')
        THEN CAST(epoch_us(TRY_CAST(json_extract_string(t, path) AS TIMESTAMP)) AS VARCHAR)
    ELSE tailrace_inside(t, place, target) END
END;

-- A value as it is written is known to the model alone.
CREATE MACRO _look_json(t, path, place, target) AS CASE WHEN _kind(t, path) <> 'NULL'
    THEN tailrace_inside(t, place, target)
END;
