//! The workflows: provision, release, restart, access. Each is a saga; its steps work through signed tasks.

pub mod reimage;
