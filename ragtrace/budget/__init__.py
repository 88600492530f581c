"""Money: what judges cost, what may be spent on them, and what was spent."""

from ragtrace.budget.prices import Price, Prices, load_prices
from ragtrace.budget.reserve import (
    NANO,
    Budget,
    BudgetGuard,
    BudgetStatus,
    BudgetUnavailable,
    BudgetWindow,
    CostEstimator,
    ExceededLimit,
    Limit,
    LimitUsage,
    OverBudget,
    Period,
    RequestCost,
    Reservation,
    Spend,
    Spender,
    SpendLedger,
    SpendTable,
    budgeted,
    budgeted_embedder,
    largest_usage,
    require_price,
)
