use std::fs::File;

use proptest::prelude::*;

use super::*;
use crate::example;

/// What is no terminal, wherever tests run.
fn plain() -> File {
    File::open("/dev/null").unwrap()
}

fn fitted(roots: &[Branch], lines: usize, letters: usize) -> String {
    fit(roots, Size { lines, letters }, &plain()).join("\n")
}

fn rollout() -> Vec<Branch> {
    let rollout = example::read(&example::objects(&example::all()));
    vec![of_rollout(&rollout, &[], example::NOW)]
}

#[test]
fn what_fits_is_shown_whole() {
    insta::assert_snapshot!(fitted(&rollout(), 20, 200));
}

#[test]
fn waves_that_are_done_fold_into_one_line() {
    insta::assert_snapshot!(fitted(&rollout(), 8, 60));
}

#[test]
fn what_does_not_fit_even_so_is_counted() {
    assert_eq!(fitted(&rollout(), 3, 30).lines().last(), Some("… and 6 more lines"));
}

fn leaf(name: &str, word: &'static str, text: &str) -> Branch {
    Branch { state: Some((word, None)), end: "Gone", ..Branch::told(name, text.to_owned()) }
}

#[test]
fn each_change_is_told_once() {
    let to = plain();
    let tree = |word: &'static str, text: &str, ages: &str| {
        let below = Branch { ages: ages.to_owned(), ..leaf("gate/b", word, text) };
        vec![Branch { branches: vec![below], ..leaf("rollout/a", "Waiting", "1/2") }]
    };
    let mut news = News::default();
    let mut told = |tree: &[Branch]| news.lines(tree, &to);
    assert_eq!(
        told(&tree("Waiting", "x", "1s")),
        ["rollout/a  Waiting  1/2", "rollout/a > gate/b  Waiting  x"]
    );
    assert_eq!(told(&tree("Waiting", "x", "2s")), [""; 0], "only time goes on");
    assert_eq!(told(&tree("Open", "x", "2s")), ["rollout/a > gate/b  Open  x"]);
    assert_eq!(told(&tree("Open", "y\u{7}\nz", "")), ["rollout/a > gate/b  Open  y  z"]);
    assert_eq!(told(&[leaf("rollout/a", "Waiting", "1/2")]), ["rollout/a > gate/b  Gone"]);
}

prop_compose! {
    fn any_leaf()(name in "\\PC{0,60}|\u{1b}.*", text in ".{0,80}", is_done in any::<bool>()) -> Branch {
        Branch { is_done, ..leaf(&name, "State", &text) }
    }
}

fn any_tree() -> impl Strategy<Value = Branch> {
    any_leaf().prop_recursive(3, 30, 6, |inner| {
        (any_leaf(), proptest::collection::vec(inner, 0..6))
            .prop_map(|(branch, branches)| Branch { branches, ..branch })
    })
}

proptest! {
    #[test]
    fn nothing_leaves_the_terminal_and_nothing_controls_it(
        roots in proptest::collection::vec(any_tree(), 0..5), lines in 1usize..12, letters in 1usize..90,
    ) {
        let shown = fit(&roots, Size { lines, letters }, &plain());
        prop_assert!(shown.len() <= lines);
        for line in shown.iter().chain(&News::default().lines(&roots, &plain())) {
            prop_assert!(!line.chars().any(char::is_control), "{line:?}");
        }
        prop_assert!(shown.iter().all(|line| line.chars().count() <= letters));
    }
}
