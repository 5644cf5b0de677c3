//! Fences as request headers; over gRPC the same names are metadata. Section 10 of
//! docs/fence-spec.md.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::percent;
use super::refusal::Refusal;
use crate::fence::FenceError;
use crate::fence::rule::check_set;
use crate::locks::{ClusterId, Fence, ResourceName, Token};

/// The resource's name, percent-encoded.
pub const RESOURCE: HeaderName = HeaderName::from_static("fencing-resource");
/// The grant's fencing token, in decimal.
pub const TOKEN: HeaderName = HeaderName::from_static("fencing-token");
/// What the mark is raised to, in decimal.
pub const FLOOR: HeaderName = HeaderName::from_static("fencing-floor");
/// The slot, in decimal; absent if there is none.
pub const SLOT: HeaderName = HeaderName::from_static("fencing-slot");
/// The authority that issued the token: 32 hexadecimal digits in lower case.
pub const CLUSTER: HeaderName = HeaderName::from_static("fencing-cluster");
/// The fences of several resources in one header, instead of all the others.
pub const FENCES: HeaderName = HeaderName::from_static("fencing");

/// How many fences one request brings at most: as many as a set has names.
pub const FENCES_MAX: usize = 64;

const ALL: [HeaderName; 6] = [RESOURCE, TOKEN, FLOOR, SLOT, CLUSTER, FENCES];

/// The headers of a write under one fence.
pub fn headers(fence: &Fence) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(5);
    let mut put = |name: HeaderName, value: String| {
        headers.insert(name, visible(&value));
    };
    put(RESOURCE, percent::encode(fence.resource.as_str()));
    put(TOKEN, fence.token.to_string());
    put(FLOOR, fence.floor.to_string());
    put(CLUSTER, fence.cluster.to_string());
    if let Some(slot) = fence.slot {
        put(SLOT, slot.to_string());
    }
    headers
}

/// Puts the fences of a write into its headers, instead of those that are there.
///
/// # Errors
/// [`FenceError::Set`] for none, for a resource that is named twice, and for more than
/// [`FENCES_MAX`]; the headers are left as they were.
pub fn insert(headers: &mut HeaderMap, fences: &[Fence]) -> Result<(), FenceError> {
    check_set(fences)?;
    if fences.len() > FENCES_MAX {
        return Err(FenceError::Set);
    }
    for name in ALL {
        headers.remove(name);
    }
    match fences {
        [fence] => headers.extend(self::headers(fence)),
        set => {
            let members: Vec<String> = set.iter().map(member).collect();
            headers.insert(FENCES, visible(&members.join(", ")));
        }
    }
    Ok(())
}

/// An item of an RFC 9651 list. Numbers are strings in it: the RFC's integers end at 15
/// digits, and a token may have 16.
fn member(fence: &Fence) -> String {
    let Fence { cluster, resource, slot, token, floor } = fence;
    let name = percent::encode(resource.as_str());
    let slot = slot.map(|slot| format!(";slot=\"{slot}\"")).unwrap_or_default();
    format!("\"{name}\";token=\"{token}\";floor=\"{floor}\";cluster=\"{cluster}\"{slot}")
}

fn visible(value: &str) -> HeaderValue {
    HeaderValue::from_str(value).expect("digits and percent-encoded names are visible ASCII")
}

/// The fences that a request brings: one or more, each of another resource.
pub(in crate::fence) fn parse(headers: &HeaderMap) -> Result<Vec<Fence>, Refusal> {
    if let Some(list) = only(headers, &FENCES)? {
        return match ALL[..5].iter().find(|name| headers.contains_key(*name)) {
            Some(_) => Err(malformed(&FENCES, "not beside the headers of a single fence")),
            None => parse_list(list),
        };
    }
    let needed = |name: HeaderName| match only(headers, &name)? {
        Some(value) => Ok(Field { name, value }),
        None => Err(Refusal::Missing { header: name }),
    };
    let (resource, token) = (needed(RESOURCE)?, needed(TOKEN)?);
    let (floor, cluster) = (needed(FLOOR)?, needed(CLUSTER)?);
    let slot = only(headers, &SLOT)?.map(|value| Field { name: SLOT, value });
    Ok(vec![fence(&resource, &token, &floor, &cluster, slot.as_ref())?])
}

/// The resource, and the slot if one is named, without a fence.
pub(super) fn parse_asked(headers: &HeaderMap) -> Result<(ResourceName, Option<u32>), Refusal> {
    let Some(value) = only(headers, &RESOURCE)? else {
        return Err(Refusal::Missing { header: RESOURCE });
    };
    let slot = only(headers, &SLOT)?.map(|value| Field { name: SLOT, value }.slot());
    Ok((Field { name: RESOURCE, value }.resource()?, slot.transpose()?))
}

/// The value of a header that comes once or not at all: of two, nobody can say which one
/// the sender meant, and proxies disagree.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let mut lines = headers.get_all(name).iter();
    let Some(value) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err(malformed(name, "comes more than once"));
    }
    value.to_str().map(Some).map_err(|_| malformed(name, "holds bytes that are not ASCII"))
}

fn parse_list(list: &str) -> Result<Vec<Fence>, Refusal> {
    let fences: Vec<Fence> = list
        .split(',')
        .take(FENCES_MAX + 1)
        .map(|member| parse_member(member.trim_matches([' ', '\t'])))
        .collect::<Result<_, _>>()?;
    if fences.len() > FENCES_MAX {
        return Err(malformed(&FENCES, "names more than 64 resources"));
    }
    check_set(&fences).map_err(|_| malformed(&FENCES, "names a resource twice"))?;
    Ok(fences)
}

/// `"name";token="7";floor="7";cluster="…"`, the parameters in any order, each once.
fn parse_member(member: &str) -> Result<Fence, Refusal> {
    let mut parts = member.split(';');
    let resource = quoted(parts.next().unwrap_or_default())?;
    let names = ["token", "floor", "cluster", "slot"];
    let mut values = [const { None }; 4];
    for part in parts {
        let bad = || malformed(&FENCES, "holds something else than items with parameters");
        let (name, value) = part.trim_start_matches(' ').split_once('=').ok_or_else(bad)?;
        let place = names.iter().position(|known| *known == name);
        let place = &mut values[place.ok_or_else(bad)?];
        if place.replace(quoted(value)?).is_some() {
            return Err(malformed(&FENCES, "gives a parameter twice"));
        }
    }
    let [token, floor, cluster, slot] = values;
    let needed = |value: Option<_>| {
        value.ok_or_else(|| malformed(&FENCES, "lacks a token, a floor or a cluster"))
    };
    let slot = slot.as_ref();
    fence(&resource, &needed(token)?, &needed(floor)?, &needed(cluster)?, slot)
}

/// Nothing that we write needs an escape inside a string: names are percent-encoded.
fn quoted(text: &str) -> Result<Field<'_>, Refusal> {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let inner = inner.filter(|inner| !inner.contains(['"', '\\']));
    let value = inner.ok_or_else(|| malformed(&FENCES, "holds something that is no string"))?;
    Ok(Field { name: FENCES, value })
}

fn fence(
    resource: &Field<'_>,
    token: &Field<'_>,
    floor: &Field<'_>,
    cluster: &Field<'_>,
    slot: Option<&Field<'_>>,
) -> Result<Fence, Refusal> {
    let fence = Fence {
        cluster: cluster.cluster()?,
        resource: resource.resource()?,
        slot: slot.map(Field::slot).transpose()?,
        token: token.token()?,
        floor: floor.token()?,
    };
    if fence.floor > fence.token {
        return Err(malformed(&floor.name, "has a floor above its token"));
    }
    Ok(fence)
}

/// A value, and the header that it is from.
#[derive(Clone)]
struct Field<'a> {
    name: HeaderName,
    value: &'a str,
}

impl Field<'_> {
    fn token(&self) -> Result<Token, Refusal> {
        let token = self.number().and_then(|number| Token::new(number).ok());
        token.ok_or_else(|| malformed(&self.name, "must be a decimal number from 1 to 2^53 - 1"))
    }

    fn slot(&self) -> Result<u32, Refusal> {
        let slot = self.number().and_then(|number| number.try_into().ok());
        slot.ok_or_else(|| malformed(&self.name, "must be a decimal slot from 0 to 2^32 - 1"))
    }

    fn resource(&self) -> Result<ResourceName, Refusal> {
        let name = percent::decode(self.value).and_then(|name| ResourceName::new(&name).ok());
        name.ok_or_else(|| malformed(&self.name, "must be a percent-encoded resource name"))
    }

    fn cluster(&self) -> Result<ClusterId, Refusal> {
        let id = ClusterId::from_hex(self.value).ok();
        let id = id.filter(|id| id.to_string() == self.value);
        id.ok_or_else(|| malformed(&self.name, "must be 32 hexadecimal digits in lower case"))
    }

    /// One number has one form: no sign, no blank, no leading zero.
    fn number(&self) -> Option<u64> {
        let number: u64 = self.value.parse().ok()?;
        (number.to_string() == self.value).then_some(number)
    }
}

fn malformed(name: &HeaderName, why: &'static str) -> Refusal {
    Refusal::Malformed { header: name.clone(), why }
}
