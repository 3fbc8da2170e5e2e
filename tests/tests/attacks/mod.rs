//! What somebody tries who may run pods in a workload cluster, or objects in a namespace of the hub, and nothing more: on
//! real servers, one file for each thing that an attacker wants.

mod floods;
mod forged_statuses;
mod forged_streams;
mod full_gates;
mod hogs;
mod listeners;
mod pushes;
