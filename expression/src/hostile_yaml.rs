//! YAML that is made to do harm, to try whatever reads it.

/// Texts that are nested without end, or hold without end, or are only large.
pub fn texts() -> Vec<(&'static str, String)> {
    let n = 20_000;
    let around = |open: &str, inner: &str, close: &str| open.repeat(n) + inner + &close.repeat(n);
    let rows = |row: &dyn Fn(usize) -> String| (1..400).map(row).collect::<String>();
    let laughs = |open: &str, close: &str| {
        let level = |n: usize| {
            let below = (0..10).map(|i| open.replace('$', &format!("{i}")) + &format!("*a{}", n - 1));
            format!("a{n}: &a{n} [{}]\n", below.map(|b| b + close).collect::<Vec<_>>().join(", "))
        };
        "a0: &a0 {k: x}\n".to_owned() + &(1..20).map(level).collect::<String>()
    };
    vec![
        ("dashes", around("- ", "x", "")),
        ("brackets", around("[", "", "]")),
        ("open brackets", "[".repeat(1 << 20)),
        ("braces", around("{a: ", "1", "}")),
        ("open braces", "{".repeat(1 << 18)),
        ("keys", around("? ", "x", "")),
        ("keys of lists", around("[? ", "x", "]")),
        ("tags", around("!a [", "", "]")),
        ("anchors", (0..n).map(|i| format!("&a{i} [")).collect()),
        ("block lists", rows(&|i| " ".repeat(i) + "-\n")),
        ("block maps", rows(&|i| " ".repeat(i) + "a:\n")),
        ("dashes and brackets", "- ".repeat(100) + &around("[{a: ", "1", "}]")),
        ("in a list", format!("- a\n- b: {}", around("[", "", "]"))),
        (
            "nested by aliases",
            "a0: &a0 [x]\n".to_owned() + &rows(&|i| format!("a{i}: &a{i} [*a{}]\n", i - 1)),
        ),
        (
            "merged without end",
            "a0: &a0 {x: y}\n".to_owned() + &rows(&|i| format!("a{i}: &a{i} {{<<: *a{}}}\n", i - 1)),
        ),
        ("laughs", laughs("", "")),
        ("laughs of maps", laughs("{k$: ", "}")),
        ("laughs of merges", laughs("{<<: ", "}")),
        ("a large scalar, often", format!("[&a {}, {}]", "x".repeat(1 << 17), "*a, ".repeat(20_000))),
        (
            "a large tag, often",
            format!("%TAG !a! {}\n---\n[{}]", "x".repeat(1 << 17), "!a!b c, ".repeat(10_000)),
        ),
        ("in itself", "&a [*a]".to_owned()),
    ]
}
