{%- set groups = {'advertiser': 'advertiser', 'month': 'make_date(year(window_start), month(window_start), 1)'} -%}
{{ config(
    materialized='incremental',
    incremental_strategy='merge',
    unique_key=['advertiser', 'month'],
    post_hook="{{ forget_groups('ad_bills', {'advertiser': 'advertiser', 'month': 'make_date(year(window_start), month(window_start), 1)'}) }}",
) }}
{{ fed_by_panes('ad_bills', groups, {'sittings': 'sittings', 'views': 'views', 'watched': 'watched', 'owed': 'owed'}) }}
