{#-
What a model reads of a source: the table as it is now, or with `tailrace dbt --epoch N` as it was after that epoch of its
log. The variable `pinned` then has for each table what stands after FROM in its place, and `missing` why one has no such.
-#}
{% macro source(source_name, table_name) %}
    {%- set found = builtins.source(source_name, table_name) %}
    {%- if execute and table_name in var('missing', {}) %}
        {%- do exceptions.raise_compiler_error(var('missing')[table_name]) %}
    {%- endif %}
    {%- do return(var('pinned', {}).get(table_name, found)) %}
{% endmacro %}
