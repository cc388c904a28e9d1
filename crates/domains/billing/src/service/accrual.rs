//! Accrual: what was used becomes what is owed.
