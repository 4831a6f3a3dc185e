{{ config(severity='warn', enabled=var('ads', false)) }}
-- By month the panes add up to the current bills, to the last digit. Beside a stream these follow some epochs behind.
select advertiser, month from (
    select advertiser, month, owed from {{ ref('owed_by_month') }} where windows > 0
    except
    select advertiser, make_date(year(window_start), month(window_start), 1), sum(owed)
    from {{ source('tailrace', 'ad_bills') }} group by all
)
