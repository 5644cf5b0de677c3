//! Random histories against a naive model of the contract, input that the edge would
//! never let through, and rows that do not fit together.

#[path = "../checked/mod.rs"]
mod checked;
mod compare;
mod hostile;
mod images;
mod naive;
mod random;
mod steps;
mod world;
