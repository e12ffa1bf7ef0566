//! The promises of the sheet that concern the interface, one by one, and that a defect breaks them.

mod packets;
mod transfers;
