"""A shop's orders as its app sends them, nested and in camelCase: revenue, the products of a day, and visits."""

from tailrace import RETRACTING, AfterCount, AfterWatermark, Col, Count, Derive, Every, Explode, Fixed, Last, Log
from tailrace import Pipeline, Sessions, Sum, TopK, days, hours, minutes

orders = Log(
    name="shop_orders",
    columns={"order_id": "string", "user": "string", "country": "string", "at": "timestamp"}
    | {"items": "array<struct<sku:string,price:double,quantity:int>>"},
    fields={"order_id": "orderId", "user": "user.id", "country": "user.country", "at": "createdAt"}
    | {"items.price": "unitPrice"},
    instants={"at": "milliseconds"},
    rest="extra",
    event_time="at",
    disorder=minutes(1),
    record_id="order_id",
    required=("user", "country"),
)
sold = [
    Explode("items", into="item"),
    Derive({"sku": Col("item.sku"), "pieces": Col("item.quantity")}),
    Derive({"amount": Col("item.price") * Col("pieces")}),
]

revenue = Pipeline(
    name="shop_revenue",
    log=orders,
    each=sold,
    key="country",
    what={"lines": Count(), "pieces": Sum("pieces"), "revenue": Sum("amount")},
    where=Fixed(hours(1)),
    when=AfterWatermark(early=Every(minutes(5)), late=AfterCount(1)),
    how=RETRACTING,
    allowed_lateness=hours(6),
)
sales = Pipeline(
    name="shop_sales",
    log=orders,
    each=sold,
    key=("country", "sku"),
    what={"pieces": Sum("pieces"), "amount": Sum("amount")},
    where=Fixed(days(1)),
    when=AfterWatermark(early=AfterCount(5), late=AfterCount(1)),
    how=RETRACTING,
    allowed_lateness=hours(6),
)
top_products = Pipeline(
    name="shop_top_products",
    log=sales.panes,
    key="country",
    what={"products": TopK("sku", 5, by=("amount", "pieces"))},
    where=Fixed(days(1)),
    when=AfterWatermark(early=AfterCount(1), late=AfterCount(1)),
    how=RETRACTING,
)
visits = Pipeline(
    name="shop_visits",
    log=orders,
    each=Derive({"lines": Col("items").size(), "version": Col("extra").at("appVersion").as_type("string")}),
    key="user",
    what={"orders": Count(), "lines": Sum("lines"), "last_order": Last("items"), "app_version": Last("version")},
    where=Sessions(minutes(30)),
    when=AfterWatermark(late=AfterCount(1)),
    how=RETRACTING,
    allowed_lateness=hours(6),
)
