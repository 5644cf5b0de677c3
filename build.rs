//! Compiles the protos without protoc.

fn main() {
    println!("cargo::rerun-if-changed=proto");
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "client")]
    protos::compile();
}

#[cfg(feature = "client")]
mod protos {
    use std::path::Path;

    const PUBLIC: [&str; 5] = [
        "ringfence/v1/common.proto",
        "ringfence/v1/sessions.proto",
        "ringfence/v1/locks.proto",
        "ringfence/v1/cluster.proto",
        "ringfence/storage/v1/storage.proto",
    ];

    pub fn compile() {
        let server = std::env::var_os("CARGO_FEATURE_SERVER").is_some();
        let mut files = PUBLIC.to_vec();
        if server {
            files.push("ringfence/peer/v1/peer.proto");
        }
        let descriptors =
            protox::compile(&files, ["proto"]).unwrap_or_else(|e| panic!("proto: {e:?}"));
        let out = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
        tonic_prost_build::configure()
            .bytes(".")
            .btree_map(".")
            .file_descriptor_set_path(Path::new(&out).join("ringfence.bin"))
            .compile_fds(descriptors)
            .unwrap_or_else(|e| panic!("proto: {e}"));
    }
}
