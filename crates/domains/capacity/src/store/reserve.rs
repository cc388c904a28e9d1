//! Reservation, in one round trip.
