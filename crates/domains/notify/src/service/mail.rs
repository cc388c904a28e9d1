//! Mail over SMTP.
