//! The fence, between the wire and the rules.

use super::v1;
use crate::locks::{ClusterId, Fence, Invalid, ResourceName, Token};

impl From<&Fence> for v1::Fence {
    fn from(fence: &Fence) -> Self {
        Self {
            cluster_id: fence.cluster.as_bytes().to_vec().into(),
            resource: fence.resource.as_str().to_owned(),
            slot: fence.slot,
            token: fence.token.get(),
            floor: fence.floor.get(),
        }
    }
}

impl TryFrom<v1::Fence> for Fence {
    type Error = Invalid;

    fn try_from(wire: v1::Fence) -> Result<Self, Invalid> {
        let token = Token::new(wire.token)?;
        let floor = Token::new(wire.floor)?;
        if floor > token {
            return Err(Invalid { field: "floor", bound: "1 to token" });
        }
        Ok(Self {
            cluster: ClusterId::from_slice(&wire.cluster_id)?,
            resource: ResourceName::new(&wire.resource)?,
            slot: wire.slot,
            token,
            floor,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_survives_the_wire_and_a_floor_above_its_token_does_not() {
        let fence = Fence {
            cluster: ClusterId::new([7; 16]),
            resource: ResourceName::new("job/7").expect("a good name"),
            slot: Some(0),
            token: Token::new(9).expect("a good token"),
            floor: Token::new(9).expect("a good token"),
        };
        let mut wire = v1::Fence::from(&fence);
        assert_eq!(Fence::try_from(wire.clone()), Ok(fence));
        wire.floor = 10;
        assert_eq!(Fence::try_from(wire).map_err(|e| e.field), Err("floor"));
    }
}
