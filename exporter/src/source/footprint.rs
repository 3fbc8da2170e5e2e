//! Which fields of an object a source's expressions read.
//!
//! Walks the expressions' trees and follows where each value comes from: a field of a field of the
//! object, an item of a list in it, a variable that stands for one. What an expression only passes
//! through is noted as existing; what it compares, computes with or returns is kept whole. When in
//! doubt, more is kept.

use std::collections::BTreeMap;

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};

use statusbridge_expression::{Expression, MAP_OF_MAPS, MAP_OF_PAIRS, has_namespace};

use super::projection::Projection;

/// Rounds after which a loop's accumulator that still grows is kept whole.
const MAX_ROUNDS: usize = 3;

/// The fields that expressions read, by the root variable that holds the object.
#[derive(Debug, Default)]
pub(super) struct Footprint {
    roots: BTreeMap<String, Projection>,
    variables: Vec<(String, Origin)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    Item,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Path {
    root: String,
    steps: Vec<Step>,
}

/// Where a value may come from. An optional is what it holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Origin {
    /// It may be the value at one of these paths.
    paths: Vec<Path>,
    /// It may be a fresh list or map whose contents come from there.
    contents: Option<Box<Origin>>,
}

impl Footprint {
    /// A root variable that holds an object, or an optional of one.
    pub(super) fn add_object(&mut self, name: &str) {
        let root = Path { root: name.to_owned(), steps: Vec::new() };
        self.roots.insert(name.to_owned(), Projection::of_object());
        self.variables.push((name.to_owned(), Origin { paths: vec![root], contents: None }));
    }

    /// A root variable that holds a list of objects.
    pub(super) fn add_objects(&mut self, name: &str) {
        self.add_object(name);
        if let Some((_, origin)) = self.variables.last_mut() {
            *origin = Origin { paths: Vec::new(), contents: Some(Box::new(origin.clone())) };
        }
    }

    /// A variable that stands for what `expression` gives.
    pub(super) fn define(&mut self, name: &str, expression: &Expression) {
        let origin = self.origin(expression.tree());
        self.variables.push((name.to_owned(), origin));
    }

    /// An expression whose outcome is used.
    pub(super) fn read(&mut self, expression: &Expression) {
        self.consume(expression.tree());
    }

    /// What is read of the object in a root variable.
    pub(super) fn projection(&self, root: &str) -> Projection {
        self.roots.get(root).cloned().unwrap_or_else(Projection::of_object)
    }

    fn at(&mut self, path: &Path) -> &mut Projection {
        let root = self.roots.entry(path.root.clone()).or_default();
        path.steps.iter().fold(root, |node, step| match step {
            Step::Field(name) => node.field(name),
            Step::Item => node.items(),
        })
    }

    /// Notes that the values themselves are used.
    fn keep(&mut self, origin: &Origin) {
        for path in &origin.paths {
            self.at(path).keep();
        }
        if let Some(contents) = &origin.contents {
            self.keep(contents);
        }
    }

    fn keep_keys(&mut self, origin: &Origin) {
        for path in &origin.paths {
            self.at(path).keep_keys();
        }
    }

    fn consume(&mut self, node: &IdedExpr) {
        let origin = self.origin(node);
        self.keep(&origin);
    }

    fn step(&mut self, origin: Origin, step: &Step) -> Origin {
        let mut stepped = Origin::default();
        for mut path in origin.paths {
            path.steps.push(step.clone());
            self.at(&path);
            stepped.paths.push(path);
        }
        match origin.contents {
            Some(contents) => stepped.join(*contents),
            None => stepped,
        }
    }

    fn origin(&mut self, node: &IdedExpr) -> Origin {
        match &node.expr {
            Expr::Unspecified | Expr::Literal(_) => Origin::default(),
            Expr::Ident(name) => {
                let found = self.variables.iter().rev().find(|(n, _)| n == name);
                found.map(|(_, origin)| origin.clone()).unwrap_or_default()
            }
            Expr::Select(select) => {
                let origin = self.origin(&select.operand);
                let field = self.step(origin, &Step::Field(select.field.clone()));
                if select.test { Origin::default() } else { field }
            }
            Expr::List(list) => {
                let items: Vec<Origin> = list.elements.iter().map(|e| self.origin(e)).collect();
                Origin::containing(items)
            }
            Expr::Map(map) => {
                let mut values = Vec::new();
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.consume(&entry.key);
                        values.push(self.origin(&entry.value));
                    }
                }
                Origin::containing(values)
            }
            // Refused when the expression was compiled.
            Expr::Struct(_) => Origin::default(),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    fn call(&mut self, call: &CallExpr) -> Origin {
        let target = match call.target.as_deref() {
            Some(target) if !has_namespace(call) => Some(self.origin(target)),
            _ => None,
        };
        match (call.func_name.as_str(), call.args.as_slice(), target) {
            (operators::CONDITIONAL, [condition, yes, no], None) => {
                self.consume(condition);
                let yes = self.origin(yes);
                yes.join(self.origin(no))
            }
            (operators::ADD, [left, right], None) => {
                let left = self.origin(left);
                left.join(self.origin(right))
            }
            (operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT, [base, index], None) => {
                let base = self.origin(base);
                match literal_step(index) {
                    Some(step) => self.step(base, &step),
                    None => {
                        self.consume(index);
                        self.keep(&base);
                        base.contents.map(|c| *c).unwrap_or_default()
                    }
                }
            }
            ("condition", [object, wanted], None) => {
                self.consume(wanted);
                let mut origin = self.origin(object);
                for step in [Step::Field("status".into()), Step::Field("conditions".into()), Step::Item] {
                    origin = self.step(origin, &step);
                }
                let kind = self.step(origin.clone(), &Step::Field("type".into()));
                self.keep(&kind);
                origin
            }
            ("kstatus", [object], None) => {
                let read = Projection::of_fields(statusbridge_kstatus::fields());
                let object = self.origin(object);
                for path in &object.paths {
                    self.at(path).merge(&read);
                }
                if let Some(contents) = &object.contents {
                    self.keep(contents);
                }
                Origin::default()
            }
            ("size", [], Some(value)) => {
                self.keep_keys(&value);
                Origin::default()
            }
            ("size", [value], None) => {
                let value = self.origin(value);
                self.keep_keys(&value);
                Origin::default()
            }
            ("first" | "last", [], Some(list)) => {
                self.keep_keys(&list);
                self.step(list, &Step::Item)
            }
            (MAP_OF_PAIRS | MAP_OF_MAPS, [list], None) => {
                let contents = |origin: Origin| origin.contents.map(|contents| *contents).unwrap_or_default();
                let list = self.origin(list);
                Origin::containing(vec![contents(contents(list))])
            }
            ("hasValue", [], Some(_)) => Origin::default(),
            ("value", [], Some(value)) => value,
            ("orValue" | "or", [other], Some(value)) => value.join(self.origin(other)),
            ("of" | "dyn", [value], None) => self.origin(value),
            ("ofNonZeroValue", [value], None) => {
                let value = self.origin(value);
                self.keep_keys(&value);
                value
            }
            (_, args, target) => {
                if let Some(target) = target {
                    self.keep(&target);
                }
                args.iter().for_each(|arg| self.consume(arg));
                Origin::default()
            }
        }
    }

    fn comprehension(&mut self, c: &ComprehensionExpr) -> Origin {
        let range = self.origin(&c.iter_range);
        self.keep_keys(&range);
        let item = self.step(range, &Step::Item);
        let mut accumulated = self.origin(&c.accu_init);
        let outside = self.variables.len();
        let mut settled = false;
        for _ in 0..MAX_ROUNDS {
            self.variables.truncate(outside);
            match &c.iter_var2 {
                Some(value) => {
                    self.variables.push((c.iter_var.clone(), Origin::default()));
                    self.variables.push((value.clone(), item.clone()));
                }
                None => self.variables.push((c.iter_var.clone(), item.clone())),
            }
            self.variables.push((c.accu_var.clone(), accumulated.clone()));
            self.consume(&c.loop_cond);
            let joined = accumulated.clone().join(self.origin(&c.loop_step));
            settled = joined == accumulated;
            accumulated = joined;
            if settled {
                break;
            }
        }
        if !settled {
            self.keep(&accumulated);
        }
        self.variables.truncate(outside);
        self.variables.push((c.accu_var.clone(), accumulated));
        let result = self.origin(&c.result);
        self.variables.truncate(outside);
        result
    }
}

impl Origin {
    fn containing(contents: Vec<Origin>) -> Self {
        let joined = contents.into_iter().fold(Origin::default(), Origin::join);
        let empty = joined == Origin::default();
        Origin { paths: Vec::new(), contents: (!empty).then(|| Box::new(joined)) }
    }

    fn join(mut self, other: Origin) -> Origin {
        for path in other.paths {
            if !self.paths.contains(&path) {
                self.paths.push(path);
            }
        }
        self.contents = match (self.contents, other.contents) {
            (Some(a), Some(b)) => Some(Box::new(a.join(*b))),
            (a, b) => a.or(b),
        };
        self
    }
}

/// The step that a literal index takes.
fn literal_step(index: &IdedExpr) -> Option<Step> {
    match &index.expr {
        Expr::Literal(LiteralValue::String(name)) => Some(Step::Field(name.inner().to_owned())),
        Expr::Literal(LiteralValue::Int(_) | LiteralValue::UInt(_)) => Some(Step::Item),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("object.metadata.name == 'a'", &["metadata.name"])]
    #[case("object.spec.on", &["spec.on"])]
    #[case("has(object.spec.a.b)", &["spec.a.b"])]
    #[case("object.?status.?a.orValue(object.spec.b) == ''", &["spec.b", "status.a"])]
    #[case("object['spec']['a'] == object.spec.list[0].b", &["spec.a", "spec.list[].b"])]
    #[case("object.spec.items.exists(i, i.a == 1)", &["spec.items[].a"])]
    #[case("object.spec.items.filter(i, i.a == 1)[0].b == 2", &["spec.items[].a", "spec.items[].b"])]
    #[case("object.spec.items.map(i, i.a)[?0].orValue('') == ''", &["spec.items[].a"])]
    #[case("size(object.spec.items) == 1", &["spec.items"])]
    #[case("object.spec.items == []", &["spec.items"])]
    #[case("object.spec[object.spec.key] == 1", &["spec"])]
    #[case("condition(object, 'Ready').status == ''", &["status.conditions[].status", "status.conditions[].type"])]
    #[case("object.spec.?a.optMap(a, a.b).orValue(1) == 1", &["spec.a.b"])]
    #[case("[object.spec.a, object.spec.b].exists(x, x.c == 1)", &["spec.a.c", "spec.b.c"])]
    #[case("object.spec.items.exists(i, item, i == 0 && item.a == 1)", &["spec.items[].a"])]
    #[case("object.spec.items.transformList(i, item, item.a)[0] == 1", &["spec.items[].a"])]
    #[case("object.spec.items.transformMap(i, item, item.a)[0].b == 1", &["spec.items[].a.b"])]
    #[case("object.spec.items.transformMapEntry(i, item, {item.a: item.b}).x.c == 1", &["spec.items[].a", "spec.items[].b.c"])]
    #[case("object.spec.items.sortBy(item, item.a)[0].b == 1", &["spec.items"])]
    #[case("object.spec.items.first().?a.orValue(1) == 1", &["spec.items[].a"])]
    #[case("cel.bind(a, object.spec.a, a.b == 1)", &["spec.a.b"])]
    #[case("sets.contains(object.spec.a, object.spec.b)", &["spec.a", "spec.b"])]
    #[case("math.greatest(object.spec.a, object.spec.b) == 1", &["spec.a", "spec.b"])]
    fn the_footprint_of_an_expression_is_what_it_reads(#[case] text: &str, #[case] expected: &[&str]) {
        let expression = Expression::compile("f", text, &["object"]).expect(text);
        let mut footprint = Footprint::default();
        footprint.add_object("object");
        footprint.read(&expression);
        let always = Projection::of_object().paths();
        let mut paths = footprint.projection("object").paths();
        paths.retain(|p| !always.contains(p) || expected.contains(&p.as_str()));
        assert_eq!(paths, expected, "{text}");
    }

    #[test]
    fn kstatus_reads_what_kstatus_reads() {
        let expression = Expression::compile("f", "kstatus(object).status == 'Current'", &["object"]);
        let mut footprint = Footprint::default();
        footprint.add_object("object");
        footprint.read(&expression.expect("an expression"));
        let expected = Projection::of_fields(statusbridge_kstatus::fields());
        assert_eq!(footprint.projection("object").paths(), expected.paths());
    }
}
