"""Bids by what they offer, as q15 to q17 count them: less than 100 dollars, less than 10,000, and more."""

from tailrace import Col, Count, Derive, Distinct, If, Match

RANKS = {
    "rank1": Match("price", "<", 10_000),
    "rank2": Match("price", ">=", 10_000) & Match("price", "<", 1_000_000),
    "rank3": Match("price", ">=", 1_000_000),
}
RANKED = Derive({f"{rank}_{who}": If(met, Col(who)) for rank, met in RANKS.items() for who in ("bidder", "auction")})
BIDS = {"total_bids": Count()} | {f"{rank}_bids": Count(f"{rank}_auction") for rank in RANKS}
DISTINCT = {
    f"{rank}_{who}s": Distinct(who if rank == "total" else f"{rank}_{who}")
    for who in ("bidder", "auction")
    for rank in ("total", *RANKS)
}
