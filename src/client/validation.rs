//! The client as one who can be asked whether a grant is current.

use std::error::Error;

use super::Client;
use crate::fence::validation::AskAuthority;
use crate::locks::{ResourceName, Token};
use crate::wire::v1;

impl AskAuthority for Client {
    async fn ask(
        &self,
        resource: &ResourceName,
        token: Token,
    ) -> Result<v1::CheckTokenResponse, Box<dyn Error + Send + Sync>> {
        Ok(self.check_token(resource.as_str(), token).await?)
    }
}
