//! `examples/screens.rs`, as docs/systems/screen-limit.md tells it.

use crate::stepwise::{around_the_kill, killing_the_leader_at};

#[tokio::test]
async fn screens_a_sleeping_device_is_refused_when_its_screen_is_used_again_after_a_failover() {
    let scene = "Its lease runs out";
    let told = killing_the_leader_at(scene, "screens", &[]).await;
    let (before, after) = around_the_kill(&told);
    assert!(before.contains("phone   has screen 1, with token 2"), "{told}");
    assert!(before.contains("phone   (stopped)"), "{told}");
    assert!(!before.contains("tablet  has screen"), "{told}");
    // The lowest free number, under the next token: both survived the leader.
    assert!(after.contains("tablet  has screen 1, with token 3"), "{told}");
    let refused = "phone   refused: stale fence: token 2 is below the mark 3 of \
                   example/screens/ann (slot 1)";
    assert!(after.contains(refused), "{told}");
    assert!(after.contains("tv      plays minute 2"), "{told}");
    let played =
        "Played: [(\"tv\", 1, 0), (\"phone\", 1, 1), (\"tablet\", 1, 1), (\"tv\", 2, 0)]\n";
    assert!(after.ends_with(played), "{told}");
}
