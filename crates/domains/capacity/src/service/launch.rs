//! From a request to a reserved allocation, in one transaction.
