"""Expectations on the baskets of products."""

from schemas.expectations.suite import Suite, SuiteTable, View, between, holds, not_null_as_in, unique
from schemas.layout import Layout
from schemas.tables.baskets import BASKETS
from schemas.tables.events import ENCOUNTERS, EVENTS
from schemas.tables.seqset import TARGET_HIDDEN


def baskets(layout: Layout) -> Suite:
    """Return the suite of baskets/1, checked against events/1 and encounters/1."""
    rules = (
        *not_null_as_in(BASKETS),
        unique("subject_id", "basket_index"),
        unique("encounter_id"),
        between("days_since_first", 0),
        holds("products_are_distinct", "len(products) = len(list_distinct(products))", "products"),
        holds(
            "hidden_basket_is_empty",
            f"CASE WHEN flags & {TARGET_HIDDEN} <> 0 THEN len(products) = 0 END",
            "flags",
            "products",
        ),
    )
    of_orders = (
        holds("order_has_its_basket", "basket IS NOT NULL", "encounter_id"),
        holds("basket_has_its_order", "encounter IS NOT NULL", "encounter_id"),
        holds("basket_holds_the_products_of_its_order", "products = products_ordered", "products"),
    )
    orders_query = """
        SELECT encounters.encounter_id AS encounter, baskets.encounter_id AS basket,
            coalesce(encounters.encounter_id, baskets.encounter_id) AS encounter_id,
            list_sort(baskets.products) AS products, coalesce(ordered.products, []) AS products_ordered
        FROM encounters FULL JOIN baskets ON encounters.encounter_id = baskets.encounter_id LEFT JOIN (
            SELECT encounter_id, list_sort(list(DISTINCT CAST(code AS BIGINT))) AS products
            FROM events GROUP BY encounter_id
        ) AS ordered ON ordered.encounter_id = baskets.encounter_id"""
    tables = (
        SuiteTable("baskets", layout.baskets, BASKETS),
        SuiteTable("encounters", layout.encounters, ENCOUNTERS),
        SuiteTable("events", layout.events, EVENTS),
    )
    views = (View("basket_rules", "FROM baskets", rules), View("baskets_of_orders", orders_query, of_orders))
    return Suite("baskets", tables, views)
