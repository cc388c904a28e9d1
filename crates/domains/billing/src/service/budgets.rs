//! Budgets of projects.
