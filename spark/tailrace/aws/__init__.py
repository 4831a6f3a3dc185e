"""Use AWS services through boto3: EMR Serverless as a runner, and objects in S3. Needs the extra `aws`.

boto3 finds the credentials as usual: in the environment, a profile, or a role.
"""

from typing import TYPE_CHECKING

from tailrace.model.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from tailrace.aws.bundle import conf
    from tailrace.aws.emr import Application, EmrServerless
    from tailrace.aws.objects import AwsError
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "Application": "tailrace.aws.emr",
            "AwsError": "tailrace.aws.objects",
            "EmrServerless": "tailrace.aws.emr",
            "conf": "tailrace.aws.bundle",
        },
    )

__all__ = [
    "Application",
    "AwsError",
    "EmrServerless",
    "conf",
]
