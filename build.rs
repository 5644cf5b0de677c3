//! Compiles the protos without protoc.

fn main() {
    println!("cargo::rerun-if-changed=proto");
    println!("cargo::rerun-if-changed=build.rs");
    // `ringfence bench` says so if it measures a build that is not optimised.
    let level = std::env::var("OPT_LEVEL").expect("cargo sets OPT_LEVEL");
    println!("cargo::rustc-env=RINGFENCE_OPT_LEVEL={level}");
    #[cfg(feature = "client")]
    protos::compile();
}

#[cfg(feature = "client")]
mod protos {
    use std::path::Path;

    const PUBLIC: [&str; 7] = [
        "ringfence/v1/common.proto",
        "ringfence/v1/events.proto",
        "ringfence/v1/sessions.proto",
        "ringfence/v1/locks.proto",
        "ringfence/v1/watch.proto",
        "ringfence/v1/admin.proto",
        "ringfence/v1/cluster.proto",
    ];

    pub fn compile() {
        let server = std::env::var_os("CARGO_FEATURE_SERVER").is_some();
        let mut files = PUBLIC.to_vec();
        if server {
            files.extend(["ringfence/storage/v1/storage.proto", "ringfence/peer/v1/peer.proto"]);
        }
        let descriptors =
            protox::compile(&files, ["proto"]).unwrap_or_else(|e| panic!("proto: {e:?}"));
        let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
        reflection(Path::new(&out));
        tonic_prost_build::configure()
            .bytes(".")
            .btree_map(".")
            .compile_fds(descriptors)
            .unwrap_or_else(|e| panic!("proto: {e}"));
    }

    /// What servers tell of themselves: the public API, with its comments.
    fn reflection(out: &Path) {
        let public = protox::compile(PUBLIC, ["proto"]).unwrap_or_else(|e| panic!("proto: {e:?}"));
        let bytes = protox::prost::Message::encode_to_vec(&public);
        std::fs::write(out.join("public.bin"), bytes).expect("OUT_DIR is writable");
    }
}
