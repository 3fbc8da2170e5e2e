//! `kstatus(object)` is what kstatus says of an object: a map with `status` (`Current`, `InProgress`, `Failed`,
//! `Terminating`, or `Unknown` for rubbish), `reason` and `message`. An optional that is empty is `NotFound`. No time
//! passes: a Pod for which no node has been found yet is InProgress, however old it is.

use cel::common::types::DYN_TYPE;
use cel::common::value::CowVal;
use cel::{DeclarationError, Env};
use serde_json::json;
use statusbridge_contract::Health;
use statusbridge_kstatus::{Status, of_resource};

use super::arguments::{Args, Outcome, held, take};
use super::{data, rendered};

pub(super) const FUNCTIONS: &[&str] = &["kstatus"];

pub(super) fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_overload("kstatus", "kstatus_dyn", vec![DYN_TYPE], kstatus)
}

fn kstatus<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [object] = take(args)?;
    let Status { health, reason, message } = match held(object.as_ref()) {
        Some(object) => {
            rendered::bytes(object)?;
            of_resource(&data::json("kstatus", object)?, i64::MIN)
        }
        None => Status::new(Health::NotFound, "", ""),
    };
    Ok(CowVal::Owned(data::owned(json!({"status": health.name(), "reason": reason, "message": message}))))
}
