//! Periodic work of the fleet. Any replica may run it, and several at once do no harm.
