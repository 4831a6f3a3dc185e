{#-
Macros call each other through `adapter.dispatch`: in a project that has these macros as the package `tailrace_macros`, a
macro of the package is not known by its bare name.
-#}

{#- What the sources say of themselves beside their columns; they are printed from the contracts. -#}
{% macro default__source_named(table) %}
    {%- for one in graph.sources.values() if one.name == table and one.source_name == 'tailrace' %}
        {%- do return(one) %}
    {%- endfor %}
    {%- do exceptions.raise_compiler_error("no source " ~ table ~ ": run tailrace tables sources") %}
{% endmacro %}

{#- The columns of a table that mean something to its readers, and not to Tailrace alone. -#}
{% macro plain_columns(table, but=[]) %}
    {%- if not execute %}{% do return('*') %}{% endif %}
    {%- set names, source_named = [], adapter.dispatch('source_named', 'tailrace_macros') %}
    {%- for name, column in source_named(table).columns.items() if not column.meta.get('machinery') and name not in but %}
        {%- do names.append('`' ~ name ~ '`') %}
    {%- endfor %}
    {%- do return(names | join(', ')) %}
{% endmacro %}

{#-
The panes of a pipeline as changes: rows with a `sign`, whose signed sum is the current answer, whatever the mode.

Of a retracting pipeline each pane adds, and each retraction takes away what an earlier one added. In the other modes
a pane says nothing of what it takes the place of, so each window's latest pane stands alone, unless it takes the
window back; one that discards says its whole answer in `answer`.
-#}
{% macro default__changes(pipeline, groups, measures) %}
    {%- set ledger = pipeline ~ '__ledger' %}
    {%- set source_named = adapter.dispatch('source_named', 'tailrace_macros') %}
    {%- set mode = source_named(ledger).meta.mode if execute else 'retracting' %}
    {%- set key = source_named(ledger).meta.key if execute else [] %}
    {%- set from = 'answer.' if mode == 'discarding' else '' %}
    select
        {%- for name, term in groups.items() %} {{ term }} as {{ name }}, {% endfor %}
        {%- for name, term in measures.items() %} {{ term }} as {{ name }}, {% endfor %}
        sign, _hash
    from (
        select *, {% if mode == 'retracting' %} if(retraction, -1, 1) {% else %}
            if(not retraction and row_number() over (
                partition by {{ (key + ['window_start', 'window_end']) | join(', ') }}
                order by generation desc, epoch desc, pane_index desc, retraction
            ) = 1, 1, 0) {% endif %} as sign,
            xxhash64(
                {%- for name in key %} `{{ name }}`, {% endfor %}
                window_start, window_end, generation, epoch, pane_index, retraction
            ) as _hash
        from (
            {#- What a discarding pane holds by itself gives way to the whole answer. -#}
            {%- if from %}
            select * except (answer, {{ source_named(ledger).meta.results | join(', ') }}), answer.*
            {%- else %}
            select *
            {%- endif %}
            from {{ source('tailrace', ledger) }}
            where kind = 'pane'
        )
    )
{% endmacro %}

{#-
A model that adds up a pipeline's answers by groups, fed by its panes.

Incrementally only those groups are computed whose panes are not the ones that they were computed of: by how many they
are and by a sum over what identifies each. No order of epochs or commits is relied on, for a backfill commits panes of
an old epoch, in a generation that may be lower than another's before it; and compaction moves rows without changing
any. A group is computed of all its panes, so it comes out as a full refresh has it. A group whose windows were all
taken back stays, with `windows` zero; one that has no panes any more is removed by `forget_groups`.

`groups` and `measures` map names to SQL over a pane's columns; a measure is a number. The sum of doubles is the exact
total, rounded once, as a `Sum` is: SQL's own sums of doubles depend on their order. It is null if a double is 2^124 or
more, or has binary digits below 2^-124.
-#}
{% macro fed_by_panes(pipeline, groups, measures) %}
{%- set doubles = adapter.dispatch('double_measures', 'tailrace_macros')(pipeline, groups, measures) %}
{%- set parts = ['top', 'whole', 'small', 'least', 'up', 'down', 'outside'] %}
with changes as (
    {{ adapter.dispatch('changes', 'tailrace_macros')(pipeline, groups, measures) }}
),
marks as (
    select {{ groups | join(', ') }}, count(*) as _panes, sum(cast(_hash as decimal(20, 0))) as _mark
    from changes
    group by {{ groups | join(', ') }}
),
changed as (
    select marks.*
    from marks
    {%- if is_incremental() %}
    left join {{ this }} as held
        on {% for name in groups %} marks.{{ name }} <=> held.{{ name }} {{ 'and' if not loop.last }} {% endfor %}
    where held._panes is null or held._panes <> marks._panes or held._mark <> marks._mark
    {%- endif %}
),
summed as (
    select
        {%- for name in groups %} changed.{{ name }}, {% endfor %}
        cast(sum(sign) as bigint) as windows,
        {%- for name in measures %}
        {%- if name in doubles %}
        {%- for limb in adapter.dispatch('double_limbs', 'tailrace_macros')('cast(changes.' ~ name ~ ' as double)') %}
        sum(cast(sign * {{ limb }} as decimal(38, 0))) as {{ name }}__{{ parts[loop.index0] }},
        {%- endfor %}
        {%- else %}
        coalesce(sum(sign * {{ name }}), 0) as {{ name }},
        {%- endif %}
        {%- endfor %}
        max(changed._panes) as _panes,
        max(changed._mark) as _mark
    from changed
    join changes
        on {% for name in groups %} changed.{{ name }} <=> changes.{{ name }} {{ 'and' if not loop.last }} {% endfor %}
    group by {% for name in groups %} changed.{{ name }}{{ ', ' if not loop.last }}{% endfor %}
)
select
    {%- for name in groups %} {{ name }}, {% endfor %}
    windows,
    {%- for name in measures %}
    {%- if name in doubles %}
    if({{ name }}__outside = 0, {{ adapter.dispatch('double_of_limbs', 'tailrace_macros')(name) }}, cast(null as double)) as {{ name }},
    {%- else %}
    {{ name }},
    {%- endif %}
    {%- endfor %}
    _panes,
    _mark
from summed
{% endmacro %}

{#- The names of the measures that are doubles, whose sums in SQL would depend on the order of the panes. -#}
{% macro default__double_measures(pipeline, groups, measures) %}
    {%- set found, changes = [], adapter.dispatch('changes', 'tailrace_macros') %}
    {%- if execute %}
        {%- set query = 'describe query with changes as (' ~ changes(pipeline, groups, measures) ~ ') select * from changes' %}
        {%- for row in run_query(query).rows if row[0] in measures and row[1] in ('double', 'float') %}
            {%- do found.append(row[0]) %}
        {%- endfor %}
    {%- endif %}
    {%- do return(found) %}
{% endmacro %}

{#- For a post-hook: removes the groups that have no panes any more, as after another generation or a restore. -#}
{% macro forget_groups(pipeline, groups) %}
    {%- if is_incremental() %}
delete from {{ this }} as held where not exists (
    select 1 from (
        select distinct {% for name, term in groups.items() %}{{ term }} as {{ name }}{{ ', ' if not loop.last }}{% endfor %}
        from {{ source('tailrace', pipeline ~ '__ledger') }} where kind = 'pane'
    ) as there
    where {% for name in groups %} there.{{ name }} <=> held.{{ name }} {{ 'and' if not loop.last }} {% endfor %}
)
    {%- else %}
select 1
    {%- endif %}
{% endmacro %}
