//! What is sold from the beginning, and what a request for it means.

use capacity::{
    model::{
        allocation::Shape,
        placement::Take,
        sku::{ProfileName, SkuCode},
    },
    service::catalog::{
        Catalog,
        managing::{SkuChange, sku_profile_delete, sku_update},
    },
};
use kernel::{Code, Failure, Problem};

use super::kit::Kit;

pub fn problem<T>(result: Result<T, Failure>) -> Problem {
    match result {
        Ok(_) => panic!("it was not refused"),
        Err(Failure::Problem(problem)) => problem,
        Err(internal) => panic!("{internal:?}"),
    }
}

#[tokio::test]
async fn the_seeds_are_those_of_the_specification() {
    let kit = Kit::new().await;
    let catalog = Catalog::new(&kit.test.db);
    let expected: [(&str, Shape, &[i32], &str, i64); 7] = [
        ("compute-vm-medium", Shape::CpuVm, &[0], "node_hour", 50),
        ("compute-vm-small", Shape::CpuVm, &[0], "node_hour", 25),
        ("h100", Shape::Baremetal, &[8], "gpu_hour", 200),
        ("h200-sxm-baremetal-8g", Shape::Baremetal, &[8], "gpu_hour", 400),
        ("h200-sxm-slice", Shape::GpuSlice, &[1, 2, 4, 8], "gpu_hour", 450),
        ("mi210x", Shape::Baremetal, &[8], "gpu_hour", 200),
        ("mi300x", Shape::Baremetal, &[8], "gpu_hour", 400),
    ];
    let sold = catalog.sold().await.unwrap();
    let seen: Vec<_> = sold
        .iter()
        .map(|p| {
            let (sku, counts) = (p.sku.sku.as_str(), &p.sku.allowed_gpu_counts[..]);
            (sku, p.sku.capacity_shape, counts, p.price.unit.name(), p.price.unit_price_minor)
        })
        .collect();
    assert_eq!(seen, expected);
    let slice = catalog.product("h200-sxm-slice").await.unwrap();
    let sizes: Vec<_> = slice
        .profiles
        .iter()
        .map(|p| (p.name.as_str(), p.gpus, p.vcpus, p.memory_mib, p.is_default))
        .collect();
    assert_eq!(
        sizes,
        [
            ("h200_1g_12c_64g", 1, 12, 65536, false),
            ("h200_1g_24c_64g", 1, 24, 65536, true),
            ("h200_2g_48c_128g", 2, 48, 131_072, true),
            ("h200_4g_96c_256g", 4, 96, 262_144, true),
            ("h200_8g_192c_512g", 8, 192, 524_288, true),
        ]
    );
    let small = catalog.product("compute-vm-small").await.unwrap();
    assert_eq!((small.profiles[0].vcpus, small.profiles[0].memory_mib), (2, 8192));
}

#[tokio::test]
async fn a_request_means_one_size_or_is_told_what_is_allowed() {
    let kit = Kit::new().await;
    let catalog = Catalog::new(&kit.test.db);
    let slice = catalog.product("h200-sxm-slice").await.unwrap();
    for (gpus, profile, expected) in [
        (None, None, "h200_1g_24c_64g"),
        (Some(1), None, "h200_1g_24c_64g"),
        (Some(4), None, "h200_4g_96c_256g"),
        (None, Some("h200_1g_12c_64g"), "h200_1g_12c_64g"),
        (Some(2), Some("h200_2g_48c_128g"), "h200_2g_48c_128g"),
    ] {
        assert_eq!(slice.profile_for(gpus, profile).unwrap().name, expected);
    }
    for (gpus, profile, told) in [
        (Some(3), None, "1, 2, 4, 8"),
        (Some(0), None, "1, 2, 4, 8"),
        (Some(2), Some("h200_1g_12c_64g"), "has 1 GPUs"),
        (None, Some("huge"), "h200_8g_192c_512g"),
    ] {
        let refused = slice.profile_for(gpus, profile).unwrap_err();
        assert_eq!(refused.code, Code::ValidationError);
        assert!(refused.message.contains(told), "{refused}");
    }
    assert_eq!((slice.take(4), slice.other_sizes(4)), (Take::Slots { slots: 4 }, vec![1, 2, 8]));
    assert_eq!(slice.units(4), 4);

    let whole = catalog.product("h200-sxm-baremetal-8g").await.unwrap();
    let size = whole.profile_for(None, None).unwrap();
    assert_eq!((size.gpus, size.vcpus), (8, None));
    assert!(whole.profile_for(Some(4), None).is_err());
    assert_eq!((whole.take(8), whole.other_sizes(8)), (Take::Whole { slots: 8 }, vec![]));

    let vm = catalog.product("compute-vm-small").await.unwrap();
    assert_eq!(
        (vm.profile_for(None, None).unwrap().vcpus, vm.take(0), vm.units(0)),
        (Some(2), Take::Slots { slots: 1 }, 1)
    );
}

#[tokio::test]
async fn a_withdrawn_product_is_refused_at_once() {
    let kit = Kit::new().await;
    let (here, sku) = (Catalog::new(&kit.test.db), SkuCode::parse("h200-sxm-slice").unwrap());
    assert!(here.product("h200-sxm-slice").await.unwrap().profile_for(None, None).is_ok());
    let withdraw = SkuChange { active: Some(false), ..SkuChange::default() };
    let mut tx = kit.write("sku.update").await;
    assert_eq!(problem(sku_update(&mut tx, &sku, withdraw.clone(), Some(7)).await).code, Code::Conflict);
    tx.roll_back().await;
    let mut tx = kit.write("sku.update").await;
    assert_eq!(sku_update(&mut tx, &sku, withdraw, Some(1)).await.unwrap().version, 2);
    tx.commit(None).await.unwrap();
    let refused = here.product("h200-sxm-slice").await.unwrap().profile_for(None, None).unwrap_err();
    assert_eq!((refused.code, &refused.details["reason"]), (Code::SkuUnavailable, &"not_sold".into()));
    assert!(here.sold().await.unwrap().iter().all(|product| product.sku.sku != "h200-sxm-slice"));
}

#[tokio::test]
async fn a_product_that_does_not_exist_is_an_error_of_the_field() {
    let kit = Kit::new().await;
    let refused = problem(Catalog::new(&kit.test.db).product("h300").await);
    assert_eq!(refused.code, Code::ValidationError);
    assert!(refused.message.starts_with("sku:") && refused.message.contains("h200-sxm-slice"), "{refused}");
}

#[tokio::test]
async fn a_size_that_was_removed_is_not_offered_any_more() {
    let kit = Kit::new().await;
    let catalog = Catalog::new(&kit.test.db);
    assert!(catalog.product("h200-sxm-slice").await.unwrap().profile_for(Some(8), None).is_ok());
    let (sku, name) =
        (SkuCode::parse("h200-sxm-slice").unwrap(), ProfileName::parse("h200_8g_192c_512g").unwrap());
    let mut tx = kit.write("sku_profile.delete").await;
    sku_profile_delete(&mut tx, &sku, &name).await.unwrap();
    tx.commit(None).await.unwrap();
    let refused = catalog.product("h200-sxm-slice").await.unwrap().profile_for(Some(8), None).unwrap_err();
    assert_eq!(refused.code, Code::SkuUnavailable);
}
