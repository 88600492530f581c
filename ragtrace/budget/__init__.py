"""Money: what judges cost, what may be spent on them, and what was spent."""

from ragtrace.budget.prices import Price, Prices, load_prices
from ragtrace.budget.reserve import (
    BudgetGuard,
    BudgetUnavailable,
    CostEstimator,
    OverBudget,
    RequestCost,
    Reservation,
    Spender,
    SpendLedger,
    SpendTable,
    budgeted,
    budgeted_embedder,
    largest_usage,
    require_price,
)
from ragtrace.budget.windows import (
    NANO,
    Budget,
    BudgetStatus,
    BudgetWindow,
    ExceededLimit,
    Limit,
    LimitUsage,
    Period,
    Spend,
)
