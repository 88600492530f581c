"""Money: what judges cost, what may be spent on them, and what was spent."""

from typing import TYPE_CHECKING

from ragtrace import _moved
from ragtrace.budget.amounts import Limit, Spend
from ragtrace.budget.layer import budgeted, largest_usage
from ragtrace.budget.prices import Price, Prices, load_prices
from ragtrace.budget.reserve import CostEstimator, RequestCost, ReservingSpender, Spender, SpendLedger
from ragtrace.budget.windows import (
    Budget,
    BudgetStatus,
    BudgetStoreUnavailable,
    BudgetWindow,
    ExceededLimit,
    LimitUsage,
    OverBudget,
    Period,
)

if not TYPE_CHECKING:
    __getattr__ = _moved.old_names(__name__)
