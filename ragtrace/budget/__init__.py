"""Money: what judges cost, what may be spent on them, and what was spent."""

from ragtrace.budget.amounts import NANO, Limit, Spend
from ragtrace.budget.layer import budgeted, budgeted_embedder, largest_usage
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
    require_price,
)
from ragtrace.budget.windows import (
    Budget,
    BudgetStatus,
    BudgetWindow,
    ExceededLimit,
    LimitUsage,
    Period,
)
