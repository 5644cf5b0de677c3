//! openraft's own suite for log stores.

use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::TypeConfigExt;
use ringfence::raft_types::TypeConfig;
use ringfence::storage::LogStore;
use tempfile::TempDir;

use crate::kit;
use crate::machine::Machine;

struct InAFolder;

impl StoreBuilder<TypeConfig, LogStore, Machine, TempDir> for InAFolder {
    async fn build(&self) -> Result<(TempDir, LogStore, Machine), StorageError<TypeConfig>> {
        let dir = kit::folder();
        let storage = kit::open(dir.path());
        let machine = Machine::new(storage.rows());
        Ok((dir, storage.log(), machine))
    }
}

#[test]
fn the_log_store_passes_openrafts_suite() {
    TypeConfig::run(Suite::test_all(InAFolder)).expect("all of the suite");
}
