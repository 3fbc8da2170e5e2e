//! `yaml(text)` is what a YAML document holds: some controllers report as a text what they mean as data.

use cel::common::types::DYN_TYPE;
use cel::common::value::CowVal;
use cel::{DeclarationError, Env};

use super::arguments::{Args, Outcome, failed, take, text};
use super::data;
use crate::budget::{charge, charge_for};
use crate::yaml;

pub(super) const FUNCTIONS: &[&str] = &["yaml"];

/// Longest text that is read, in bytes.
const MAX_YAML: usize = 64 * 1024;
/// Steps for a byte of it, which may be a value: to parse one takes as long as so many steps.
const YAML_STEPS: u64 = 8;

pub(super) fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_overload("yaml", "yaml_dyn", vec![DYN_TYPE], read)
}

fn read<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let [document] = take(args)?;
    let document = text(&document)?;
    if document.len() > MAX_YAML {
        return Err(failed("yaml", format!("the text is longer than {MAX_YAML} bytes")));
    }
    charge(yaml::field_work(document) as u64 * YAML_STEPS)?;
    let value = data::owned(yaml::from_field(document).map_err(|error| failed("yaml", error))?);
    charge_for(&*value)?;
    Ok(CowVal::Owned(value))
}
