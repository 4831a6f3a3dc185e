{#-
Each version of each answer of a retracting pipeline: what it was (`<result>`), what it took the place of
(`<result>_before`), when it was published and why. A version that takes the answer back for good has none.
`unit` is what a window is called: 'hour'.
-#}
{% macro restatements_of(pipeline, unit) %}
    {%- set told = adapter.dispatch('source_named', 'tailrace_macros')(pipeline ~ '__ledger').meta if execute else {'key': [], 'results': []} %}
    {%- set place = told.key + ['window_start', 'window_end'] %}
with panes as (
    select {{ (place + told.results) | join(', ') }},
        generation, epoch, pane_index, timing, writer, processing_time, watermark, not retraction as stands,
        -- A retraction shares the version of the pane that takes its place: alone it takes the window back for good.
        row_number() over (
            partition by {{ place | join(', ') }}, generation, epoch, pane_index order by retraction
        ) as place
    from {{ source('tailrace', pipeline ~ '__ledger') }}
    where kind = 'pane'
),
published as (
    select *,
        row_number() over answer as version,
        {%- for name in told.results %}
        lag(if(stands, {{ name }}, null)) over answer as {{ name }}_before,
        {%- endfor %}
        row_number() over (
            partition by {{ place | join(', ') }} order by generation desc, epoch desc, pane_index desc
        ) = 1 as current
    from panes
    where place = 1
    window answer as (partition by {{ place | join(', ') }} order by generation, epoch, pane_index)
),
runs as (
    select generation, max(reason) as reason
    from {{ source('tailrace', pipeline ~ '__runs') }}
    where kind = 'backfill'
    group by generation
)
select
    {%- for name in place %} p.{{ name }}, {% endfor %}
    p.version, p.current, p.processing_time as published_at,
    {%- for name in told.results %}
    if(p.stands, p.{{ name }}, null) as {{ name }}, p.{{ name }}_before,
    {%- endfor %}
    p.timing,
    case
        when p.writer = 'backfill' then concat('backfill', coalesce(concat(': ', r.reason), ''))
        when not p.stands then 'taken back'
        when p.timing = 'early' then 'more was known before the {{ unit }} was complete'
        when p.timing = 'on_time' then 'the {{ unit }} was complete by the watermark'
        else 'records came late'
    end as why,
    p.writer, p.generation, p.epoch
from published as p
left join runs as r on r.generation = p.generation
{% endmacro %}
