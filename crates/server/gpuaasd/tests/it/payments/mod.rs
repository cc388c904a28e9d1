//! Payments end to end: the control plane, the simulated provider, and Stripe's own SDK as the judge of both.
