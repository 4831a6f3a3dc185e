{#-
Freshness is how far the watermark trails the log's own time. That is the wall clock's, unless the records say when they
became known: then it is what they say last, and a log of old records is not stale for being old.
-#}
{% macro spark__collect_freshness_custom_sql(source, loaded_at_query) %}
    {% call statement('collect_freshness_custom_sql', fetch_result=True, auto_begin=False) -%}
    with watermark as ({{ loaded_at_query }})
    select
        (select max(watermark) from watermark) as max_loaded_at,
        {% if adapter.dispatch('source_named', 'tailrace_macros')(source.identifier).meta.get('clock') == 'records' -%}
        (
            select timestamp_micros(cast(summary['tailrace.processing_time'] as bigint))
            from {{ source }}.snapshots as s join {{ source }}.refs as r on r.snapshot_id = s.snapshot_id
            where r.name = 'main'
        )
        {%- else -%}
        current_timestamp()
        {%- endif %} as snapshotted_at
    {% endcall %}
    {{ return(load_result('collect_freshness_custom_sql')) }}
{% endmacro %}
