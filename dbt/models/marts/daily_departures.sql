{%- set groups = {'origin': 'origin', 'day': 'cast(window_start as date)'} -%}
{{ config(
    materialized='incremental',
    incremental_strategy='merge',
    unique_key=['origin', 'day'],
    post_hook="{{ forget_groups('hourly_departures', {'origin': 'origin', 'day': 'cast(window_start as date)'}) }}",
) }}
{#- A mean is a total over a count; the total is a whole number of minutes, so this gives it exactly. -#}
{{ fed_by_panes('hourly_departures', groups, {
    'flights': 'flights',
    'departures': 'departures',
    'delay_minutes': 'cast(round(mean_delay * departures) as bigint)',
}) }}
