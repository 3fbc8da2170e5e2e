use rstest::rstest;

use super::*;
use crate::decide::unix;

fn at(text: &str) -> Seconds {
    unix(&serde_json::from_value(text.into()).unwrap())
}

const MORNING: &str = "2026-05-04T08:00:00Z";
const NOON: &str = "2026-05-04T12:00:00Z";
const EVENING: &str = "2026-05-04T18:00:00Z";

fn standing(now: &str) -> Standing {
    Standing { moment: Moment { t: at(now), now: at(now) }, was_open: false, stale_after: 60.0 }
}

fn freeze(name: &str, from: Option<&str>, until: &str) -> Freeze {
    Freeze { name: name.into(), reason: "release".into(), from: from.map(at), until: at(until) }
}

fn reasons(hold: &Hold) -> Vec<(&str, Option<Seconds>)> {
    hold.waiting.iter().map(|it| (it.reason.as_str(), it.until.as_ref().map(unix))).collect()
}

fn of(all: &[Freeze]) -> Freezes<'_> {
    Freezes { all, knowledge: Knowledge::Whole }
}

fn daily(hour: u8) -> Window {
    Window { schedule: format!("0 {hour} * * *"), duration: "8h".into(), time_zone: "Etc/UTC".into() }
}

#[test]
fn without_terms_nothing_is_waited_for() {
    let hold = held(&[], false, &Freezes::default(), &standing(NOON)).unwrap();
    assert_eq!(hold, Hold { waiting: Vec::new(), holds_until: Seconds::INFINITY, open_until: None });
}

#[rstest]
#[case::before("2026-05-04T07:59:59Z", &[], MORNING)]
#[case::at_its_begin(MORNING, &[("Frozen", Some(NOON))], NOON)]
#[case::at_its_last_second("2026-05-04T11:59:59Z", &[("Frozen", Some(NOON))], NOON)]
fn a_freeze_holds_from_its_begin_to_its_end(
    #[case] now: &str,
    #[case] expected: &[(&str, Option<&str>)],
    #[case] until: &str,
) {
    let hold = held(&[], false, &of(&[freeze("a", Some(MORNING), NOON)]), &standing(now)).unwrap();
    let expected: Vec<_> = expected.iter().map(|(reason, until)| (*reason, until.map(at))).collect();
    assert_eq!(reasons(&hold), expected);
    assert_eq!(hold.holds_until, at(until));
    assert_eq!(hold.open_until, expected.is_empty().then(|| at(MORNING)));
}

#[test]
fn what_has_ended_holds_nothing() {
    let hold = held(&[], false, &of(&[freeze("a", Some(MORNING), NOON)]), &standing(NOON)).unwrap();
    assert_eq!((reasons(&hold), hold.holds_until, hold.open_until), (vec![], Seconds::INFINITY, None));
}

#[test]
fn of_several_freezes_the_last_to_end_is_named() {
    let freezes = [freeze("a", None, NOON), freeze("b", None, EVENING), freeze("c", Some(NOON), EVENING)];
    let hold = held(&[], false, &of(&freezes), &standing(MORNING)).unwrap();
    let message = "frozen until 2026-05-04T18:00:00Z by RolloutFreeze b, and 1 more in force: release";
    assert_eq!(hold.waiting[0].message, message);
    assert_eq!(hold.holds_until, at(NOON));
}

#[test]
fn all_that_holds_is_told_and_what_needs_somebody_comes_first() {
    let freezes = [freeze("a", None, EVENING)];
    let hold = held(&[daily(20)], true, &of(&freezes), &standing(NOON)).unwrap();
    let next = Some(at("2026-05-04T20:00:00Z"));
    assert_eq!(
        reasons(&hold),
        [("GatePaused", None), ("Frozen", Some(at(EVENING))), ("OutsideWindow", next)]
    );
    assert_eq!((hold.holds_until, hold.open_until), (at(EVENING), None));
}

#[test]
fn it_stays_open_until_its_window_ends_or_a_freeze_begins() {
    for (freezes, until) in [
        (vec![], "2026-05-04T16:00:00Z"),
        (vec![freeze("a", Some("2026-05-04T15:00:00Z"), EVENING)], "2026-05-04T15:00:00Z"),
        (vec![freeze("a", Some(EVENING), "2026-05-05T18:00:00Z")], "2026-05-04T16:00:00Z"),
    ] {
        let hold = held(&[daily(8)], false, &of(&freezes), &standing(NOON)).unwrap();
        assert_eq!((hold.waiting.len(), hold.open_until, hold.holds_until), (0, Some(at(until)), at(until)));
    }
}

#[test]
fn a_window_that_cannot_be_read_is_an_error() {
    let window = Window { schedule: "0 0 31 2 *".into(), ..daily(0) };
    let error = held(&[daily(8), window], false, &Freezes::default(), &standing(NOON)).unwrap_err();
    assert!(error.starts_with("windows[1]: schedule"), "{error}");
}

#[rstest]
#[case::known(Knowledge::Whole, false, None)]
#[case::no_such_kind(Knowledge::NotServed, false, None)]
#[case::unknown(Knowledge::Unsure { since: 0.0, error: "forbidden" }, false, Some("FreezesUnavailable"))]
#[case::open_for_long(Knowledge::Unsure { since: 0.0, error: "forbidden" }, true, Some("FreezesUnavailable"))]
#[case::open(Knowledge::Unsure { since: 1_777_895_950.0, error: "forbidden" }, true, None)]
fn nothing_opens_while_freezes_are_not_known(
    #[case] knowledge: Knowledge<'_>,
    #[case] was_open: bool,
    #[case] expected: Option<&str>,
) {
    let standing = Standing { was_open, ..standing(NOON) };
    let hold = held(&[], false, &Freezes { all: &[], knowledge }, &standing).unwrap();
    assert_eq!(hold.waiting.first().map(|it| it.reason.as_str()), expected);
}

#[rstest]
#[case::one(true, false, Knowledge::Whole, None)]
#[case::none(false, false, Knowledge::Whole, Some("nobody has approved the revision yet"))]
#[case::of_another_revision(false, true, Knowledge::Whole, Some("approvals of other revisions are void"))]
#[case::no_such_kind(false, false, Knowledge::NotServed, Some("nobody can approve: the hub does not serve"))]
#[case::unknown(false, false, Knowledge::Unsure { since: 0.0, error: "refused" }, Some("cannot be told: refused"))]
#[case::known_long_ago(true, false, Knowledge::Unsure { since: 0.0, error: "refused" }, Some("cannot be told: refused"))]
fn an_approval_is_waited_for(
    #[case] valid: bool,
    #[case] others: bool,
    #[case] knowledge: Knowledge<'_>,
    #[case] expected: Option<&str>,
) {
    let approved = Approved { name: "a".into(), user: "anna".into(), at: None };
    let approvals = Approvals { valid: valid.then_some(&approved), others, knowledge };
    let standing = standing(NOON);
    assert_eq!(approval(Approval::NotRequired, &approvals, &standing), None);
    let told = approval(Approval::Required, &approvals, &standing);
    match (told, expected) {
        (None, None) => {}
        (Some(told), Some(expected)) => {
            assert_eq!(told.reason, "ApprovalRequired");
            assert!(told.message.contains(expected), "{}", told.message);
        }
        other => panic!("{other:?}"),
    }
}
