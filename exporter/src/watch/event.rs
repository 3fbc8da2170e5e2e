//! Parsing what the API server sends, lean: one line of a watch, or one page of a list.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::{fault::Fault, key::PackageKey};
use crate::source::Projection;

/// The annotation on the bookmark that ends the initial events of a streaming list
/// (kubernetes/kubernetes, `apimachinery/pkg/apis/meta/v1`, `InitialEventsAnnotationKey`).
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// How objects are asked for, and lists of them. A server that cannot give metadata alone gives whole objects.
const WHOLE: Forms = Forms { object: "application/json", list: "application/json" };
const METADATA: Forms = Forms {
    object: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
    list: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
};

/// What requests accept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Forms {
    /// Those for one object, and for watches.
    pub(super) object: &'static str,
    /// Those for lists.
    pub(super) list: &'static str,
}

/// One event of a watch.
#[derive(Debug, PartialEq)]
pub(super) enum Event {
    /// Added or modified.
    Applied(Value),
    Deleted(Value),
    Bookmark {
        version: String,
        ends_list: bool,
    },
    Error {
        code: u16,
        message: String,
    },
}

/// How to parse events of a kind: what to keep of its objects, of bookmarks and of errors.
#[derive(Debug)]
pub(super) struct Parser {
    /// How to ask for what is parsed.
    pub(super) forms: Forms,
    /// The objects' kind, where they do not say it themselves.
    kind: Option<String>,
    object: Projection,
    bookmark: Projection,
    whole: Projection,
}

impl Parser {
    /// Where nothing but metadata is kept of the objects of a kind, nothing else is asked for either: what is in a Secret, say,
    /// never gets here. What is sent then says a kind and an `apiVersion` that are not the object's.
    pub(super) fn new(object: Projection, kind: &str) -> Self {
        let (forms, kind, object) = match object.is_of_metadata() {
            true => (METADATA, Some(kind.to_owned()), object.without(&["apiVersion", "kind"])),
            false => (WHOLE, None, object),
        };
        let mut bookmark = Projection::of_object();
        bookmark.field("metadata").field("annotations").keep();
        let mut whole = Projection::default();
        whole.keep();
        Self { forms, kind, object, bookmark, whole }
    }

    /// An object as it was parsed, with its kind.
    fn named(&self, mut object: Value) -> Value {
        if let (Some(kind), Value::Object(fields)) = (&self.kind, &mut object) {
            fields.insert("kind".to_owned(), kind.as_str().into());
        }
        object
    }

    /// Parses one line of a watch.
    pub(super) fn event(&self, line: &[u8]) -> Result<Event, Fault> {
        let malformed = |error: serde_json::Error| Fault::Malformed(error.to_string());
        let mut deserializer = serde_json::Deserializer::from_slice(line);
        let (kind, object) = EventSeed(self).deserialize(&mut deserializer).map_err(malformed)?;
        deserializer.end().map_err(malformed)?;
        Ok(match kind.as_str() {
            "ADDED" | "MODIFIED" => Event::Applied(self.named(object)),
            "DELETED" => Event::Deleted(object),
            "BOOKMARK" => Event::Bookmark {
                version: version_of(&object).to_owned(),
                ends_list: object
                    .pointer("/metadata/annotations")
                    .and_then(|all| all.get(INITIAL_EVENTS_END))
                    == Some(&"true".into()),
            },
            "ERROR" => Event::Error {
                code: object
                    .get("code")
                    .and_then(Value::as_u64)
                    .and_then(|c| u16::try_from(c).ok())
                    .unwrap_or(0),
                message: object.get("message").and_then(Value::as_str).unwrap_or("no message").to_owned(),
            },
            other => return Err(Fault::Malformed(format!("event of type `{other}`"))),
        })
    }

    /// Parses one object.
    pub(super) fn object(&self, text: &str) -> Result<Value, Fault> {
        let malformed = |error: serde_json::Error| Fault::Malformed(error.to_string());
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let object = self.object.seed().deserialize(&mut deserializer).map_err(malformed)?;
        deserializer.end().map_err(malformed)?;
        Ok(self.named(object))
    }

    /// Parses one page of a list: lean objects, resource version, continue token.
    pub(super) fn page(&self, text: &str) -> Result<Page, Fault> {
        let malformed = |error: serde_json::Error| Fault::Malformed(error.to_string());
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let page = PageSeed(self).deserialize(&mut deserializer).map_err(malformed)?;
        deserializer.end().map_err(malformed)?;
        Ok(page)
    }
}

/// One page of a list.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) objects: Vec<Value>,
    pub(super) version: String,
    pub(super) next: Option<String>,
}

/// The resource version of an object; empty when it has none.
pub(super) fn version_of(object: &Value) -> &str {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or("")
}

/// Namespace and name of an object.
pub(super) fn key_of(object: &Value) -> Result<PackageKey, Fault> {
    let metadata = &object["metadata"];
    match metadata["name"].as_str() {
        Some(name) => Ok(PackageKey::new(metadata["namespace"].as_str(), name)),
        None => Err(Fault::Malformed("an object without a name".to_owned())),
    }
}

struct EventSeed<'p>(&'p Parser);

impl<'de> DeserializeSeed<'de> for EventSeed<'_> {
    type Value = (String, Value);
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for EventSeed<'_> {
    type Value = (String, Value);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a watch event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut kind: Option<String> = None;
        let (mut object, mut early) = (None, false);
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match &*key {
                "type" => kind = Some(map.next_value()?),
                "object" => {
                    let keep = match kind.as_deref() {
                        Some("BOOKMARK") => &self.0.bookmark,
                        Some("ERROR") => &self.0.whole,
                        Some(_) => &self.0.object,
                        // No server sends it so, but JSON allows it.
                        None => {
                            early = true;
                            &self.0.whole
                        }
                    };
                    object = Some(map.next_value_seed(keep.seed())?);
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let (kind, object) =
            kind.zip(object).ok_or_else(|| A::Error::custom("an event without type or object"))?;
        let of_package = early && !matches!(kind.as_str(), "BOOKMARK" | "ERROR");
        Ok((kind, if of_package { self.0.object.project(&object) } else { object }))
    }
}

struct PageSeed<'p>(&'p Parser);

impl<'de> DeserializeSeed<'de> for PageSeed<'_> {
    type Value = Page;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Page, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for PageSeed<'_> {
    type Value = Page;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Page, A::Error> {
        let (mut page, mut has_items) = (Page::default(), false);
        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match &*key {
                "metadata" => {
                    let metadata: Value = map.next_value()?;
                    let text = |field| metadata.get(field).and_then(Value::as_str).unwrap_or("");
                    page.version = text("resourceVersion").to_owned();
                    page.next = Some(text("continue")).filter(|c| !c.is_empty()).map(str::to_owned);
                }
                "items" => {
                    has_items = true;
                    map.next_value_seed(ItemsSeed(self.0, &mut page.objects))?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        if has_items { Ok(page) } else { Err(A::Error::custom("a list without items")) }
    }
}

struct ItemsSeed<'p, 'o>(&'p Parser, &'o mut Vec<Value>);

impl<'de> DeserializeSeed<'de> for ItemsSeed<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ItemsSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list's items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(object) = seq.next_element_seed(self.0.object.seed())? {
            self.1.push(self.0.named(object));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parser() -> Parser {
        let mut projection = Projection::of_object();
        projection.field("status").field("phase").keep();
        Parser::new(projection, "Part")
    }

    fn event(value: &Value) -> Event {
        parser().event(value.to_string().as_bytes()).unwrap()
    }

    /// What PartialObjectMetadata says of itself is not what the object is.
    #[test]
    fn of_what_only_metadata_is_kept_nothing_else_is_asked_for() {
        assert_eq!(parser().forms.list, "application/json");
        let mut projection = Projection::of_object();
        projection.field("metadata").field("labels").keep();
        let parser = Parser::new(projection, "Secret");
        assert!(parser.forms.object.starts_with("application/json;as=PartialObjectMetadata;"));
        let metadata = json!({"name": "a", "labels": {"owner": "helm"}});
        let sent =
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata});
        let expected = json!({"kind": "Secret", "metadata": metadata});
        let event = parser.event(json!({"type": "ADDED", "object": sent}).to_string().as_bytes()).unwrap();
        assert_eq!(event, Event::Applied(expected.clone()));
        assert_eq!(parser.object(&sent.to_string()).unwrap(), expected);
        let page = json!({"metadata": {"resourceVersion": "7"}, "items": [sent]});
        assert_eq!(parser.page(&page.to_string()).unwrap().objects, [expected]);
    }

    #[test]
    fn objects_are_lean() {
        let object = json!({"metadata": {"name": "a", "resourceVersion": "7", "managedFields": [1]},
            "spec": {"big": true}, "status": {"phase": "x", "more": 1}});
        let Event::Applied(lean) = event(&json!({"type": "MODIFIED", "object": object})) else { panic!() };
        assert_eq!(lean["status"], json!({"phase": "x"}));
        assert_eq!((version_of(&lean), lean.get("spec")), ("7", None));
        assert_eq!(key_of(&lean).unwrap(), PackageKey::new(None, "a"));
    }

    #[test]
    fn bookmarks_and_errors_are_told_apart() {
        let end = json!({"metadata": {"resourceVersion": "9", "annotations": {INITIAL_EVENTS_END: "true"}}});
        assert_eq!(
            event(&json!({"type": "BOOKMARK", "object": end})),
            Event::Bookmark { version: "9".into(), ends_list: true }
        );
        let plain = json!({"kind": "X", "metadata": {"resourceVersion": "10"}});
        assert_eq!(
            event(&json!({"type": "BOOKMARK", "object": plain})),
            Event::Bookmark { version: "10".into(), ends_list: false }
        );
        let gone = json!({"kind": "Status", "code": 410, "message": "too old"});
        assert_eq!(
            event(&json!({"type": "ERROR", "object": gone})),
            Event::Error { code: 410, message: "too old".into() }
        );
    }

    #[test]
    fn what_is_cut_short_is_malformed() {
        for text in
            ["", "{\"type\":\"ADDED\"", "{\"type\":\"ADDED\"}", "{}", "{\"type\":\"ADDED\",\"object\":{}} x"]
        {
            assert!(matches!(parser().event(text.as_bytes()), Err(Fault::Malformed(_))), "{text}");
        }
        assert!(matches!(parser().page("{\"metadata\":{}}"), Err(Fault::Malformed(_))));
        assert!(matches!(parser().page("{\"items\":[{\"metadata\":"), Err(Fault::Malformed(_))));
    }

    #[test]
    fn a_page_has_objects_version_and_token() {
        let text = json!({"items": [{"metadata": {"name": "a", "namespace": "n"}, "status": null}, {"metadata": "rubbish"}],
            "metadata": {"resourceVersion": "5", "continue": "abc"}});
        let page = parser().page(&text.to_string()).unwrap();
        assert_eq!((page.objects.len(), page.version.as_str(), page.next.as_deref()), (2, "5", Some("abc")));
        assert_eq!(key_of(&page.objects[0]).unwrap(), PackageKey::new(Some("n"), "a"));
        assert!(key_of(&page.objects[1]).is_err());
    }
}
