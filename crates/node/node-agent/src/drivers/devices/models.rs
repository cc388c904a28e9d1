//! The GPUs that we know by name.

use node_proto::catalog::GpuVendor;

/// Vendor, device id, name.
const MODELS: &[(GpuVendor, &str, &str)] = &[
    (GpuVendor::Nvidia, "2901", "B200"),
    (GpuVendor::Nvidia, "2941", "GB200"),
    (GpuVendor::Nvidia, "3182", "B300"),
    (GpuVendor::Nvidia, "2335", "H200"),
    (GpuVendor::Nvidia, "233b", "H200-NVL"),
    (GpuVendor::Nvidia, "2342", "GH200"),
    (GpuVendor::Nvidia, "2330", "H100"),
    (GpuVendor::Nvidia, "2336", "H100"),
    (GpuVendor::Nvidia, "2339", "H100"),
    (GpuVendor::Nvidia, "2331", "H100-PCIe"),
    (GpuVendor::Nvidia, "2321", "H100-NVL"),
    (GpuVendor::Nvidia, "2324", "H800"),
    (GpuVendor::Nvidia, "2322", "H800-PCIe"),
    (GpuVendor::Nvidia, "2329", "H20"),
    (GpuVendor::Nvidia, "20b0", "A100-40GB"),
    (GpuVendor::Nvidia, "20b2", "A100-80GB"),
    (GpuVendor::Nvidia, "20b1", "A100-PCIe-40GB"),
    (GpuVendor::Nvidia, "20f1", "A100-PCIe-40GB"),
    (GpuVendor::Nvidia, "20b5", "A100-PCIe-80GB"),
    (GpuVendor::Nvidia, "20f3", "A800-80GB"),
    (GpuVendor::Nvidia, "20f5", "A800-PCIe-80GB"),
    (GpuVendor::Nvidia, "20b7", "A30"),
    (GpuVendor::Nvidia, "2235", "A40"),
    (GpuVendor::Nvidia, "2236", "A10"),
    (GpuVendor::Nvidia, "2237", "A10G"),
    (GpuVendor::Nvidia, "2230", "RTX-A6000"),
    (GpuVendor::Nvidia, "26b5", "L40"),
    (GpuVendor::Nvidia, "26b9", "L40S"),
    (GpuVendor::Nvidia, "27b8", "L4"),
    (GpuVendor::Nvidia, "26b1", "RTX-6000-Ada"),
    (GpuVendor::Nvidia, "2bb5", "RTX-PRO-6000"),
    (GpuVendor::Nvidia, "2684", "RTX-4090"),
    (GpuVendor::Nvidia, "1db1", "V100-16GB"),
    (GpuVendor::Nvidia, "1db4", "V100-PCIe-16GB"),
    (GpuVendor::Nvidia, "1db5", "V100-32GB"),
    (GpuVendor::Nvidia, "1db6", "V100-PCIe-32GB"),
    (GpuVendor::Nvidia, "1eb8", "T4"),
    (GpuVendor::Amd, "75a3", "MI355X"),
    (GpuVendor::Amd, "75a0", "MI350X"),
    (GpuVendor::Amd, "74a5", "MI325X"),
    (GpuVendor::Amd, "74a1", "MI300X"),
    (GpuVendor::Amd, "74a0", "MI300A"),
    (GpuVendor::Amd, "7408", "MI250X"),
    (GpuVendor::Amd, "740c", "MI250"),
    (GpuVendor::Amd, "740f", "MI210"),
    (GpuVendor::Amd, "738c", "MI100"),
    (GpuVendor::Amd, "738e", "MI100"),
];

pub const UNKNOWN: &str = "unknown";

pub fn model(vendor: GpuVendor, device_id: &str) -> &'static str {
    let known = MODELS.iter().find(|(v, id, _)| *v == vendor && *id == device_id);
    known.map_or(UNKNOWN, |(_, _, name)| name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_device_is_listed_once_and_others_are_unknown() {
        let ids: BTreeSet<_> =
            MODELS.iter().map(|(vendor, id, _)| (*vendor == GpuVendor::Amd, *id)).collect();
        assert_eq!(ids.len(), MODELS.len());
        assert_eq!(model(GpuVendor::Nvidia, "2335"), "H200");
        assert_eq!(model(GpuVendor::Amd, "2335"), UNKNOWN);
    }
}
