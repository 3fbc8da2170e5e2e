//! Which fields the expressions of a source read.

use statusbridge_expression::OBJECT;
use statusbridge_kstatus as kstatus;

use super::super::{footprint::Footprint, join::By, program::Source, projection::Projection};

/// What the expressions read, by the variables that hold objects.
pub(super) fn footprint(source: &Source) -> Footprint {
    let mut footprint = Footprint::default();
    footprint.add_object(OBJECT);
    for related in &source.related {
        related.expressions().for_each(|e| footprint.read(e));
        if related.by_reference() {
            footprint.add_object(&related.name);
        } else {
            footprint.add_objects(&related.name);
        }
    }
    let p = &source.program;
    for (name, expression) in &p.variables {
        footprint.define(name, expression);
    }
    p.identity.iter().flat_map(|identity| identity.expressions()).for_each(|e| footprint.read(e));
    p.conditions.iter().for_each(|e| footprint.read(e));
    p.outcomes().for_each(|e| footprint.read(e));
    // The references are most of an object: they are kept only where somebody looks at them.
    let watch = p.watch.iter().filter(|watch| watch.enabled);
    watch.flat_map(|watch| watch.expressions()).for_each(|e| footprint.read(e));
    footprint
}

/// Notes in a source what has to be kept of objects.
pub(super) fn set(source: &mut Source) {
    let footprint = footprint(source);
    let p = &source.program;
    let mut projection = footprint.projection(OBJECT);
    if p.health.is_none() {
        projection.merge(&Projection::of_fields(kstatus::package_fields()));
    }
    if p.apply.is_none() {
        projection.merge(&Projection::of_fields(kstatus::apply_fields()));
    }
    source.projection = projection;
    for related in &mut source.related {
        related.projection = footprint.projection(&related.name);
        if let By::Labels { labels, .. } = &related.by {
            let kept = related.projection.field("metadata").field("labels");
            labels.iter().for_each(|(name, _)| kept.field(name).keep());
        }
    }
}
